package dbio_commit;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import scala.collection.immutable.Seq;

/** Files that Spark has listed for a read: which the caller names, and which are below some directories. */
class ListedFiles {
  static List of(PartitioningAwareFileIndex index) {
    List found = new ArrayList();
    Seq all = index.allFiles();
    for (int i = 0; i < all.size(); i++) found.add(all.apply(i));
    return found;
  }

  /** The files that the caller names one by one: these are read as they are, also if they are not live. */
  static Set named(List all, Seq rootPaths, GivenPaths known) {
    Set roots = new HashSet(), found = new HashSet();
    for (int i = 0; i < rootPaths.size(); i++) roots.add(rootPaths.apply(i));
    for (int i = 0; i < all.size(); i++) {
      Path file = path(all.get(i));
      if (roots.contains(file) && (known == null || known.literals().contains(file))) found.add(file);
    }
    return found;
  }

  static boolean haveTids(List all, Set named) {
    for (int i = 0; i < all.size(); i++) if (isOfDbio(path(all.get(i))) && !named.contains(path(all.get(i)))) return true;
    return false;
  }

  static boolean isOfDbio(Path file) { return file.getName().indexOf("-tid-") >= 0; }

  /** The directories that are read; of a file that a pattern of the caller matches, its directory. */
  static List roots(List all, Seq rootPaths, Set named) {
    Set files = new HashSet(), found = new LinkedHashSet();
    for (int i = 0; i < all.size(); i++) files.add(path(all.get(i)));
    for (int i = 0; i < rootPaths.size(); i++) {
      Path root = (Path) rootPaths.apply(i);
      if (!named.contains(root)) found.add(files.contains(root) ? root.getParent() : root);
    }
    return new ArrayList(found);
  }

  /** Whether the path is one of the directories, or below one. */
  static boolean isIn(Path path, Set directories) {
    for (Path place = path; place != null; place = place.getParent()) if (directories.contains(place)) return true;
    return false;
  }

  static boolean isOther(Object file, Map places, Set named) {
    return named.contains(path(file)) || !isIn(path(file), places.keySet());
  }

  /** The live files as they are listed. */
  static Map among(Map live, List all) {
    Map found = new LinkedHashMap();
    for (int i = 0; i < all.size(); i++) if (live.containsKey(path(all.get(i)))) found.put(path(all.get(i)), all.get(i));
    return found;
  }

  static Path path(Object file) { return ((FileStatus) file).getPath(); }
}
