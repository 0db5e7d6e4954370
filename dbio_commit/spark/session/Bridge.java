package dbio_commit;

import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import org.apache.spark.SparkContext;

/**
 * Questions of the JVM's threads, for which the Python of this driver comes over Py4J's own connection: it has the
 * gateway's token, and nothing listens in Python. `bridge.py` is the other end.
 *
 * A Function of the language's own, so that a class of another class loader can ask. In the Java that Janino compiles:
 * no lambdas, and what comes out of a collection is cast.
 */
public class Bridge implements Function {
  /** Of what Python calls; `java/__init__.py` has the same. */
  public static final String VERSION = "1";

  private static final long TAKE_S = 5;
  /** After so long, who took a question and has not begun with it is gone: somebody else gets it. */
  private static final long BEGIN_NS = TimeUnit.SECONDS.toNanos(10);
  /** Somebody comes every TAKE_S; after so long, no Python is there that would begin. */
  private static final long GONE_NS = TimeUnit.SECONDS.toNanos(120);
  /** After so long, no Python is there that would end what it has begun: it may hold all its threads for minutes. */
  private static final long LOST_NS = TimeUnit.HOURS.toNanos(1);

  private final LinkedBlockingQueue questions = new LinkedBlockingQueue();
  private volatile long seen = System.nanoTime();

  /**
   * Asks `{topic, text, subject}` and returns the answer, a String. Raises IllegalStateException with what Python
   * says went wrong. An interrupt waits until the answer is there: a commit may be under way.
   */
  public Object apply(Object asked) {
    Question question = new Question((Object[]) asked, SparkContext.getOrCreate());
    questions.add(question);
    boolean interrupted = false;
    try {
      while (true) {
        try {
          if (question.done.await(1, TimeUnit.SECONDS)) return question.result();
        } catch (InterruptedException e) {
          interrupted = true;
        }
        if (question.isLost(System.nanoTime())) questions.add(question);
        long silent = System.nanoTime() - seen;
        if (silent > GONE_NS && question.begun.compareAndSet(false, true)) {
          throw new IllegalStateException("dbio_commit.UnsupportedStoreError: no Python of this Spark comes for"
              + " what it is asked, and nothing was begun; call dbio.enable(spark, parquet=True) in the one that is"
              + " there, and write again");
        }
        if (silent > LOST_NS) {
          throw new IllegalStateException("dbio_commit.CommitStateUnknownError: the Python that answers this"
              + " Spark has begun to, and was not heard of for an hour; look at `dbio log` before you write again");
        }
      }
    } finally {
      if (interrupted) Thread.currentThread().interrupt();
    }
  }

  /** The next question, for Python; null where none comes for a while. */
  public Question take() throws InterruptedException {
    seen = System.nanoTime();
    Question question = (Question) questions.poll(TAKE_S, TimeUnit.SECONDS);
    if (question != null) question.taken = System.nanoTime();
    return question;
  }

  public static class Question {
    final CountDownLatch done = new CountDownLatch(1);
    volatile long taken;
    private final Object[] asked;
    private final SparkContext context;
    private final Properties properties;
    private final AtomicBoolean begun = new AtomicBoolean();
    private volatile String answer;
    private volatile String error;

    Question(Object[] asked, SparkContext context) {
      this.asked = asked;
      this.context = context;
      this.properties = (Properties) context.getLocalProperties().clone();
    }

    boolean isLost(long now) {
      if (begun.get() || taken == 0 || now - taken < BEGIN_NS) return false;
      taken = 0;
      return true;
    }

    String result() {
      if (error != null) throw new IllegalStateException(error);
      return answer;
    }

    /**
     * Begins to answer it: false where somebody else has. With `alike`, jobs that this thread starts from now on have
     * the local properties of the one that asks, its job group among them.
     */
    public boolean begin(boolean alike) {
      if (!begun.compareAndSet(false, true)) return false;
      if (alike) context.setLocalProperties(properties);
      return true;
    }

    public String topic() { return (String) asked[0]; }

    public String text() { return (String) asked[1]; }

    public Object subject() { return asked[2]; }

    public void answer(String text) {
      answer = text;
      done.countDown();
    }

    public void fail(String message) {
      error = message;
      done.countDown();
    }
  }
}
