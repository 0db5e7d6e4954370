package dbio_commit;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Seq;

/** The files of a snapshot without those that, by their statistics, hold no row which fulfils the filters of a query. */
public class SkippingIndex implements FileIndex {
  private final FileIndex all;
  private final SparkSession session;
  private final String token;
  private final boolean skips; // whether conditions mean the same to the statistics of the files
  volatile SqlTable table; // whose files these are
  private String[] chosen; // the files to read, as `skip` of `tables.py` answers; null for all

  public SkippingIndex(FileIndex all, SparkSession session, String token, boolean skips) {
    this.all = all;
    this.session = session;
    this.token = token;
    this.skips = skips;
  }

  /** Only these of the files. */
  SkippingIndex only(String[] chosen) {
    SkippingIndex some = new SkippingIndex(all, session, token, skips);
    some.table = table;
    some.chosen = chosen;
    return some;
  }

  public Seq rootPaths() { return all.rootPaths(); }
  public StructType partitionSchema() { return all.partitionSchema(); }
  public long sizeInBytes() { return all.sizeInBytes(); }
  public void refresh() {}
  public String[] inputFiles() { return all.inputFiles(); }
  public String toString() { return all.toString(); }

  /** Indexes are equal if their files are: by this, Spark finds what it has cached. */
  public boolean equals(Object other) {
    return other instanceof SkippingIndex && ((SkippingIndex) other).token.equals(token) && ((SkippingIndex) other).skips == skips
        && Arrays.equals(((SkippingIndex) other).chosen, chosen) && ((SkippingIndex) other).session == session;
  }

  public int hashCode() { return token.hashCode(); }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    Seq found = all.listFiles(partitionFilters, dataFilters);
    if (chosen != null) found = among(found, chosen);
    String condition = skips ? ConditionText.ofAll(dataFilters) : null;
    if (condition == null || found.isEmpty()) return found;
    return among(found, Questions.skip(session, token, condition));
  }

  private Seq among(Seq found, String[] answer) {
    boolean areKept = answer[0].equals("keep"); // else those to leave out: whatever are fewer
    Set named = new HashSet(Arrays.asList(answer).subList(1, answer.length));
    int root = ((Path) rootPaths().head()).toUri().getPath().replaceAll("/+$", "").length() + 1;
    List kept = new ArrayList();
    for (int i = 0; i < found.size(); i++) {
      PartitionDirectory directory = (PartitionDirectory) found.apply(i);
      List files = new ArrayList();
      for (int j = 0; j < directory.files().size(); j++) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) directory.files().apply(j);
        if (named.contains(file.getPath().toUri().getPath().substring(root)) == areKept) files.add(file);
      }
      if (!files.isEmpty()) {
        Seq some = (Seq) ArraySeq$.MODULE$.unsafeWrapArray(files.toArray());
        kept.add(new PartitionDirectory(directory.values(), some));
      }
    }
    return (Seq) ArraySeq$.MODULE$.unsafeWrapArray(kept.toArray());
  }
}
