package dbio_commit;

import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import org.apache.spark.SparkContext;

/**
 * Passes questions of JVM threads to the Python process of this driver. Python fetches them over Py4J's own connection,
 * with the gateway's token, so that nothing listens in Python. `bridge.py` is the other end.
 *
 * It implements `java.util.function.Function`, so that a class of another class loader can call it. In the Java that
 * Janino compiles: no lambdas and no generics, so that elements of collections are cast.
 */
public class Bridge implements Function {
  /** Version of the methods that Python calls. `jvm.py` has the same. */
  public static final String VERSION = "1 for Scala 2.13";

  private static final long TAKE_S = 5;
  /** If a Python thread took a question and has not begun to answer it after this time, another one gets the question. */
  private static final long BEGIN_NS = TimeUnit.SECONDS.toNanos(10);
  /** Python calls `take` every TAKE_S. After this time without a call, no Python process will begin to answer. */
  private static final long GONE_NS = TimeUnit.SECONDS.toNanos(120);
  /** After this time without a call, Python will not finish an answer either. Its threads may be busy for minutes. */
  private static final long LOST_NS = TimeUnit.HOURS.toNanos(1);

  private final LinkedBlockingQueue questions = new LinkedBlockingQueue();
  private volatile long seen = System.nanoTime();

  /**
   * Asks `{topic, text, subject}` and returns the answer, a String. Throws IllegalStateException with the message of an
   * error in Python. An interrupt takes effect only after the answer, as a commit may be under way.
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
          throw new IllegalStateException("dbio_commit.UnsupportedStoreError: no Python process of this Spark driver"
              + " has answered for 2 minutes, and nothing was begun; call dbio.enable again, as before, in the Python process"
              + " that uses Spark, and repeat the query or the write");
        }
        if (silent > LOST_NS) {
          throw new IllegalStateException("dbio_commit.CommitStateUnknownError: the Python process that began to answer"
              + " has been silent for an hour, so a write may have committed or not; look at `dbio log` before you write again");
        }
      }
    } finally {
      if (interrupted) Thread.currentThread().interrupt();
    }
  }

  /** The next question, for Python; null if none comes within TAKE_S. */
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
     * Begins to answer. False if another thread has begun already. With `alike`, Spark jobs that this thread starts from
     * now on have the local properties of the thread that asks, such as its job group.
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
