package headrace;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Runs one scenario: {@code Main SCENARIO SERVER [NAME=VALUE ...]}.
 *
 * <p>A scenario that runs to its end prints what it found as one JSON object, on which the test asserts. One that fails
 * prints the stack trace and exits with 1.
 */
public final class Main {
    static final Duration DEADLINE = Duration.ofSeconds(60);
    static final ObjectMapper JSON = new ObjectMapper();

    interface Scenario {
        void run(Arguments arguments, Map<String, Object> found) throws Exception;
    }

    /** What the test asked for. */
    record Arguments(String server, Map<String, String> options) {
        String get(String name) {
            String value = options.get(name);
            if (value == null) {
                throw new IllegalArgumentException("the scenario needs " + name + "=...");
            }
            return value;
        }

        int number(String name) {
            return Integer.parseInt(get(name));
        }

        /** The client's own settings: those with a dot in their names. */
        Map<String, Object> settings(Map<String, Object> defaults) {
            Map<String, Object> all = new HashMap<>(defaults);
            all.put("bootstrap.servers", server);
            all.put("reconnect.backoff.max.ms", "200");
            options.forEach((name, value) -> {
                if (name.contains(".")) {
                    all.put(name, value);
                }
            });
            return all;
        }
    }

    private static final Map<String, Scenario> SCENARIOS = Map.of(
            "topics", Admins::topics,
            "groups", Admins::groups,
            "cluster", Admins::cluster,
            "pipelined", Transactions::pipelined,
            "copy", Transactions::copy,
            "share", Shares::run,
            "member", Member::run,
            "wordcount", WordCount::run);

    private Main() {}

    public static void main(String[] words) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String word : Arrays.asList(words).subList(2, words.length)) {
            int at = word.indexOf('=');
            options.put(word.substring(0, at), word.substring(at + 1));
        }
        Map<String, Object> found = new LinkedHashMap<>();
        try {
            SCENARIOS.get(words[0]).run(new Arguments(words[1], options), found);
        } catch (Exception error) {
            System.err.println("found so far: " + JSON.writeValueAsString(found));
            error.printStackTrace();
            System.exit(1);
        }
        System.out.println(JSON.writeValueAsString(found));
        System.out.flush();
        System.exit(0);
    }
}
