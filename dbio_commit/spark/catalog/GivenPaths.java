package dbio_commit;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.GlobExpander;
import org.apache.hadoop.fs.GlobPattern;
import org.apache.hadoop.fs.Path;

/** The paths of a read as its caller gave them: directories, files, and patterns in Hadoop's form. */
class GivenPaths {
  private final List all = new ArrayList(); // of String[]: the components of a path, with its file system first
  private final List literals = new ArrayList(); // of Path: each up to the first component that is a pattern
  boolean hasPatterns;

  /** As Spark takes them from a caller. */
  static GivenPaths of(Configuration conf, List texts) throws IOException {
    GivenPaths found = new GivenPaths();
    for (int i = 0; i < texts.size(); i++) {
      List expanded = GlobExpander.expand((String) texts.get(i));
      for (int j = 0; j < expanded.size(); j++) {
        Path path = new Path((String) expanded.get(j));
        found.add(path.getFileSystem(conf).makeQualified(path), true);
      }
    }
    return found;
  }

  /** Paths that exist: none of them is a pattern. */
  static GivenPaths of(List paths) {
    GivenPaths found = new GivenPaths();
    for (int i = 0; i < paths.size(); i++) found.add((Path) paths.get(i), false);
    return found;
  }

  private void add(Path path, boolean mayBePattern) {
    String[] components = components(path);
    Path literal = path;
    for (int i = components.length - 1; i > 0; i--) {
      boolean isPattern = mayBePattern && isPattern(components[i]);
      components[i] = isPattern ? PATTERN + components[i] : components[i];
      if (isPattern) literal = up(path, components.length - i);
      hasPatterns |= isPattern;
    }
    all.add(components);
    literals.add(literal);
  }

  static boolean isPattern(String text) { return text.matches("(?s).*[*?\\[{\\\\].*"); }

  private static final String PATTERN = "\0"; // at the start of a component that is a pattern

  List literals() { return literals; }

  boolean isOnly(Path path) { return all.size() == 1 && !hasPatterns && literals.get(0).equals(path); }

  /** The directories below a root that have all that is given there, relative to the root, which is "". */
  String[] below(Path root) {
    Set found = new LinkedHashSet();
    for (int i = 0; i < literals.size(); i++) {
      String literal = literals.get(i).toString(), start = root + "/";
      if (literal.startsWith(start)) found.add(literal.substring(start.length()));
      else if (root.toString().equals(literal) || start.startsWith(literal + "/")) found.add("");
    }
    return (String[]) found.toArray(new String[0]);
  }

  /** The path that names the file, or a directory that has it: this path or one above it. Null if the caller gave none. */
  Path rootOf(Path file) {
    String[] own = components(file);
    for (int i = 0; i < all.size(); i++) {
      String[] given = (String[]) all.get(i);
      if (matches(given, own)) return up(file, own.length - given.length);
    }
    return null;
  }

  private static boolean matches(String[] given, String[] own) {
    if (given.length > own.length) return false;
    for (int i = given.length - 1; i >= 0; i--) {
      boolean isPattern = given[i].startsWith(PATTERN);
      if (isPattern ? !new GlobPattern(given[i].substring(1)).matches(own[i]) : !given[i].equals(own[i])) return false;
    }
    return true;
  }

  private static Path up(Path path, int levels) {
    for (int i = 0; i < levels; i++) path = path.getParent();
    return path;
  }

  private static String[] components(Path path) {
    String system = path.toUri().getScheme() + "://" + path.toUri().getAuthority();
    List found = new ArrayList(Arrays.asList(new String[] {system}));
    String[] names = path.toUri().getPath().split("/");
    for (int i = 0; i < names.length; i++) if (!names[i].isEmpty()) found.add(names[i]);
    return (String[]) found.toArray(new String[0]);
  }
}
