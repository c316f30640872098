#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "tessera/base/core_watch.h"
#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/files/stream_copy.h"
#include "tessera/base/parallel_for.h"
#include "tessera/base/printable.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/base/thread.h"
#include "tessera/base/utf8.h"
#include "tessera/testing/no_threads.h"

namespace tessera {
namespace {

TEST(Random, PhiloxGivesThePublishedVector) {
  // Random123's known answer for counter and key of all ones.
  const auto words = philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U});
  EXPECT_THAT(words, testing::ElementsAre(0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU));
}

TEST(Random, NormalHasMeanZeroAndVarianceOne) {
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random_normal({.seed = 3, .stream = hash_name("w")}, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

TEST(Random, InverseNormalCdfInvertsErfc) {
  for (const double p : {1e-300, 1e-20, 1e-12, 1e-11, 0.001, 0.0749, 0.0751, 0.1, 0.5, 0.9249, 0.9251, 0.999999}) {
    const double back = 0.5 * std::erfc(-inverse_normal_cdf(p) / std::sqrt(2.0));
    // Far out a last digit of the quantile x is x^2 last digits of the probability.
    EXPECT_NEAR(back / p, 1, 1e-15 * (10 + std::pow(inverse_normal_cdf(p), 2))) << p;
  }
  // The tails mirror each other: 1 - 2^-n is a number.
  for (int n = 1; n < 53; ++n) {
    EXPECT_EQ(inverse_normal_cdf(1 - std::ldexp(1.0, -n)), -inverse_normal_cdf(std::ldexp(1.0, -n))) << n;
  }
}

TEST(Random, TruncatedNormalStaysInsideItsLimit) {
  for (uint64_t i = 0; i < 10000; ++i) EXPECT_LE(std::abs(random_truncated_normal({.seed = 1}, i, 2.0)), 2.0);
}

TEST(Crc32c, GivesTheIscsiVectors) {
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8A9136AAU);
  const std::string digits = "123456789";
  const auto bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(crc32c(bytes), 0xE3069283U);
  EXPECT_EQ(crc32c(bytes.subspan(4), crc32c(bytes.first(4))), 0xE3069283U);
}

TEST(Crc32c, OfAWholeIsThatOfItsPieces) {
  std::vector<std::byte> bytes(100'003);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
  for (const size_t size :
       {511UL, 512UL, 513UL, 767UL, 768UL, 1'025UL, 12'287UL, 12'288UL, 12'289UL, 24'576UL, 100'003UL}) {
    const auto whole = std::span<const std::byte>(bytes).first(size);
    uint32_t crc = 0;
    for (size_t at = 0; at < size; at += 5) crc = crc32c(whole.subspan(at, std::min<size_t>(5, size - at)), crc);
    EXPECT_EQ(crc32c(whole), crc) << size;
    const auto first = whole.first(size / 3);
    const auto second = whole.subspan(size / 3);
    EXPECT_EQ(crc32c_combine(crc32c(first), crc32c(second), second.size()), crc) << size;
  }
}

TEST(StreamCopy, CopiesAnyBytesToAnyPlace) {
  std::vector<std::byte> from(1000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
  for (const size_t size : {0, 1, 63, 64, 65, 200, 900}) {
    for (const size_t begin : {0, 1, 17, 64}) {
      for (const size_t place : {0, 5, 63}) {
        std::vector<std::byte> to(1000);
        stream_copy(std::span(from).subspan(begin, size), std::span(to).subspan(place, size));
        std::vector<std::byte> expected(1000);
        std::copy_n(from.begin() + static_cast<int>(begin), size, expected.begin() + static_cast<int>(place));
        EXPECT_EQ(to, expected) << size << " from " << begin << " to " << place;
      }
    }
  }
}

TEST(Strings, ShortestReadsBack) {
  EXPECT_EQ(shortest(2.3025851F), "2.3025851");
  EXPECT_EQ(shortest(0.1F), "0.1");
  EXPECT_EQ(shortest(2.0F), "2.0");
  EXPECT_EQ(shortest(std::nanf("")), "nan");
}

TEST(Strings, SecondsAreShownAlikeOnBothSidesOfZero) {
  for (const double seconds : {6e-8, 5e-4, 0.25, 3.0}) {
    EXPECT_EQ(format_seconds(-seconds), "-" + format_seconds(seconds));
  }
  EXPECT_EQ(format_seconds(-1e-8), "0");
  EXPECT_EQ(format_seconds(-0.25), "-250.00 ms");
}

TEST(Plural, OfOneIsNone) {
  EXPECT_EQ(plural(0, "rank"), "0 ranks");
  EXPECT_EQ(plural(1, "rank"), "1 rank");
  EXPECT_EQ(plural(2, "rank"), "2 ranks");
  EXPECT_EQ(plural(2, "micro-batch"), "2 micro-batches");
}

TEST(Strings, ClosestFindsATypo) {
  EXPECT_EQ(closest("reduce_sim", {"reduce_sum", "relu"}), "reduce_sum");
  EXPECT_EQ(closest("xyz", {"reduce_sum", "relu"}), "");
  EXPECT_EQ(closest("rnu", {"ckpt", "info", "run"}), "run");  // two letters have changed places
  EXPECT_EQ(closest("abc", {"bca"}), "");
}

TEST(Strings, PrintableShowsWhatWouldSteerATerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\r\n\tc\x7f"), "a\\x1b[31mb\\x0d\n\tc\\x7f");
  EXPECT_EQ(printable("Grüße, 東京 😀"), "Grüße, 東京 😀");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J");  // a control sequence of one character
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "x"),
            "\\xe2\\x80\\xaex");  // right to left from here on
  EXPECT_EQ(printable("\xff\xc3"
                      "A\xc0\xaf"),
            "\\xff\\xc3A\\xc0\\xaf");  // no UTF-8, cut off, too long a form
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "\\x00x");
}

TEST(JsonError, SaysWhereAndWhatCannotStandThere) {
  EXPECT_EQ(describe_json_error("{\n \"ü\": \x02}", 10), "line 2, column 7: \"\\x02\" cannot stand there");
  EXPECT_EQ(describe_json_error("\xff", 1), "line 1, column 1: \"\\xff\" cannot stand there");
  EXPECT_EQ(describe_json_error("[\"a\n", 4), "line 1, column 4: the line cannot end there");
  EXPECT_EQ(describe_json_error("[1,\n", 6), "line 2, column 1: the text ends before it is whole");
  EXPECT_EQ(describe_json_error("[1,", 1000), "line 1, column 4: the text ends before it is whole");
  EXPECT_EQ(describe_json_error(" \n", 3), "the text is empty");
  EXPECT_EQ(describe_json_error("x", 0), "line 1, column 1: \"x\" cannot stand there");
}

TEST(JsonError, TheLibrarysWordsHaveNoTag) {
  EXPECT_EQ(plain_json_words("[json.exception.type_error.302] type must be number, but is string"),
            "type must be number, but is string");
  EXPECT_EQ(plain_json_words("a\x1b"), "a\\x1b");
  EXPECT_EQ(plain_json_words(std::string(1000, 'a')).size(), 200);
}

TEST(Utf8, HasOneFormForACharacterAndNoneForASurrogate) {
  for (const std::string_view text : {"", "plain", "d\xc3\xa9j\xc3\xa0", "\xe2\x82\xac", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  EXPECT_TRUE(is_utf8(std::string_view("a\0b", 3)));
  for (const std::string_view text :
       {"\xc0\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xc3", "\xa9"}) {
    EXPECT_FALSE(is_utf8(text)) << printable(text);
  }
  EXPECT_EQ(first_character("\xe2\x82\xac!").code, 0x20acU);
}

TEST(ParallelFor, CoversTheRangeOnceAndRethrows) {
  const ParallelFor parallel_for(3);
  std::vector<int> hits(1000);
  parallel_for(1000, 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
  });
  EXPECT_THAT(hits, testing::Each(1));
  EXPECT_THROW(parallel_for(10, 1, [](int64_t, int64_t) { throw InvalidArgument("no"); }), InvalidArgument);
}

TEST(ParallelFor, KeepsItsThreadsWhereALoopNeedsFewer) {
  const ParallelFor parallel_for(4);
  const auto threads_of = [&](int64_t n) {
    std::set<pid_t> threads;
    std::mutex mutex;
    parallel_for(n, 1, [&](int64_t, int64_t) {
      const std::lock_guard lock(mutex);
      threads.insert(gettid());
    });
    return threads;
  };
  const auto all = threads_of(4);
  EXPECT_EQ(threads_of(2).size(), std::min<size_t>(all.size(), 2));
  EXPECT_EQ(threads_of(4), all);
}

TEST(ParallelFor, RunsNoMoreThreadsThanThereAreCores) {
  const int num_cores = omp_get_num_procs();
  const ParallelFor parallel_for(4 * num_cores);
  std::set<pid_t> threads;
  std::set<int> parts;
  std::mutex mutex;
  parallel_for.with_parts(4 * num_cores, 1, [&](int64_t, int64_t, int part) {
    const std::lock_guard lock(mutex);
    threads.insert(gettid());
    parts.insert(part);
  });
  EXPECT_LE(threads.size(), static_cast<size_t>(num_cores));
  EXPECT_EQ(parts.size(), static_cast<size_t>(4 * num_cores)) << "what is computed does not depend on the cores";
}

TEST(FileSystem, AtomicWriteReplacesTheContent) {
  MemoryFileSystem files;
  files.create_directories("d");
  files.write_atomically("d/a", "one");
  files.write_atomically("d/a", "two");
  EXPECT_EQ(files.read_text("d/a"), "two");
  EXPECT_THAT(files.list("d"), testing::ElementsAre("a"));
}

TEST(FileSystem, NamesAMissingFile) {
  EXPECT_THROW(
      {
        try {
          FileSystem::local().open("/nonexistent/file");
        } catch (const IoError& error) {
          EXPECT_THAT(error.what(), testing::HasSubstr("/nonexistent/file: cannot open: No such file"));
          throw;
        }
      },
      IoError);
}

// Somebody's static object, whose threads still use it.
void exit_with_a_guard(bool is_over) {
  std::atexit([] { std::fputs("destroyed", stderr); });
  {
    const ExitGuard guard;
    if (!is_over) std::thread([] { std::exit(3); }).join();
  }
  std::exit(4);
}

TEST(ExitGuard, ExitDestroysNothingWhileItLives) {
  EXPECT_EXIT(exit_with_a_guard(false), testing::ExitedWithCode(3), testing::Not(testing::HasSubstr("destroyed")));
  EXPECT_EXIT(exit_with_a_guard(true), testing::ExitedWithCode(4), testing::HasSubstr("destroyed"));
}

struct SaysItsEnd {
  ~SaysItsEnd() { std::fputs("destroyed", stderr); }
};

// An object that is made later than the guard, in a thread that has one.
void exit_in_a_guarded_thread() {
  const ExitGuard guard;
  std::thread([] {
    const ExitGuard own;
    static const SaysItsEnd later;
    std::exit(5);
  }).join();
}

TEST(ExitGuard, ExitOfAThreadThatHasOneDestroysNothingThatWasMadeLater) {
  EXPECT_EXIT(exit_in_a_guarded_thread(), testing::ExitedWithCode(5), testing::Not(testing::HasSubstr("destroyed")));
}

TEST(Thread, WhatItWasForIsSaidWhereThereIsNoRoom) {
  const NoThreads none;
  EXPECT_THAT([] { start_thread("the workers", [] {}); },
              testing::ThrowsMessage<IoError>(
                  testing::AllOf(testing::StartsWith("cannot start a thread for the workers: Resource temporarily "
                                                     "unavailable; "),
                                 testing::HasSubstr(" threads run"))));
}

TEST(Thread, AGroupJoinsThoseThatWereStartedBeforeAnError) {
  std::atomic<int> num_ended = 0;
  const auto start_two = [&] {
    ThreadGroup threads;
    threads.start("one", [&] { ++num_ended; });
    const NoThreads none;
    EXPECT_FALSE(threads.try_start([] {}));
    threads.start("two", [&] { ++num_ended; });
  };
  EXPECT_THROW(start_two(), IoError);
  EXPECT_EQ(num_ended, 1);
}

TEST(Thread, CountsThoseThatThereIsRoomFor) {
  EXPECT_EQ(count_startable_threads(3), 3);
  const NoThreads none;
  EXPECT_EQ(count_startable_threads(3), 0);
}

// How a thread that gives way does so, and one that it has started; then after each call of another thread.
struct WaysOfThreads {
  GivesWay first = GivesWay::kNot;
  GivesWay of_its_thread = GivesWay::kNot;
  GivesWay later = GivesWay::kNot;
  GivesWay awaited = GivesWay::kNot;
  int nice = 0;
  int policy = -1;  // at the end
};
WaysOfThreads ways_of_threads() {
  WaysOfThreads ways;
  std::atomic<int> turn = 0;
  const auto begin = [&](int next) {
    turn = next;
    turn.notify_all();
  };
  const auto await = [&](int wanted) {
    for (int now = turn; now != wanted; now = turn) turn.wait(now);
  };
  std::thread thread([&] {
    give_way();
    ways.first = how_gives_way();
    std::thread([&] { ways.of_its_thread = how_gives_way(); }).join();
    begin(1);
    await(2);
    ways.later = how_gives_way();
    ways.nice = getpriority(PRIO_PROCESS, 0);
    begin(3);
    await(4);
    ways.awaited = how_gives_way();
    ways.policy = sched_getscheduler(0);
  });
  await(1);
  get_on_by_share();
  begin(2);
  await(3);
  stop_giving_way();
  begin(4);
  thread.join();
  return ways;
}

bool may_raise_threads() {
  bool may = false;
  std::thread([&] {
    const sched_param none{};
    may = sched_setscheduler(0, SCHED_IDLE, &none) == 0 && sched_setscheduler(0, SCHED_OTHER, &none) == 0;
  }).join();
  return may;
}

TEST(Thread, ThatGivesWayDoesSoOnIdleCoresThenByShareAndNotWhenSomeoneWaitsForIt) {
  if (!may_raise_threads()) GTEST_SKIP() << "this process may not raise the priority of its threads";
  const int own = sched_getscheduler(0);
  const auto ways = ways_of_threads();
  EXPECT_EQ(ways.first, GivesWay::kOnIdleCores);
  EXPECT_EQ(ways.of_its_thread, GivesWay::kOnIdleCores);
  EXPECT_EQ(ways.later, GivesWay::kByShare);
  EXPECT_EQ(ways.nice, std::min(getpriority(PRIO_PROCESS, 0) + 10, 19));
  EXPECT_EQ(ways.awaited, GivesWay::kNot);
  EXPECT_EQ(ways.policy, SCHED_OTHER);
  EXPECT_EQ(sched_getscheduler(0), own);
}

// Takes the privilege from the calling thread and those that it starts.
bool gives_up_raising_threads() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  constexpr uint32_t kOthers = ~(uint32_t{1} << CAP_SYS_NICE);
  data[0].effective &= kOthers;
  data[0].permitted &= kOthers;
  return syscall(SYS_capset, &header, data) == 0 && !may_raise_threads();
}

// Whoever could not be raised again would wait for idle cores for ever where there are none.
TEST(Thread, ThatCannotBeRaisedAgainNeverWaitsForIdleCores) {
  bool has_given_up = false;
  WaysOfThreads ways;
  std::thread([&] {
    has_given_up = gives_up_raising_threads();
    if (has_given_up) ways = ways_of_threads();
  }).join();
  if (!has_given_up) GTEST_SKIP() << "every thread may raise others here (RLIMIT_NICE)";
  EXPECT_EQ(ways.first, GivesWay::kByShare);
  EXPECT_EQ(ways.of_its_thread, GivesWay::kByShare);
  EXPECT_EQ(ways.later, GivesWay::kByShare);
  EXPECT_EQ(ways.nice, std::min(getpriority(PRIO_PROCESS, 0) + 10, 19));
  EXPECT_EQ(ways.awaited, GivesWay::kNot);
}

class CoreWatchTest : public testing::Test {
 protected:
  // A step of 200 ms in which threads had work all the time, `waiting` of it without a core.
  void step(double waiting) {
    clock_.sleep_ms(200);
    times_.waiting_ns += static_cast<int64_t>(waiting * 2e8);
    times_.running_ns += static_cast<int64_t>((1 - waiting) * 2e8);
    watch_.look();
  }

  FakeClock clock_;
  ThreadTimes times_{.running_ns = 1, .waiting_ns = 1};
  int num_looks_ = 0;
  CoreWatch watch_{clock_, [this] {
                     ++num_looks_;
                     return std::optional(times_);
                   }};
};

TEST_F(CoreWatchTest, ThreadsSleepWhileOthersWantTheirCores) {
  watch_.look();
  for (int i = 0; i < 5; ++i) step(0.05);
  EXPECT_FALSE(watch_.is_busy());
  step(0.3);
  EXPECT_TRUE(watch_.is_busy());
  // OpenMP has more threads than there are cores, which is what lets it spin shortly.
  const auto count_threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<unsigned>(std::distance(begin(tasks), end(tasks)));
  };
  const bool is_limited = std::getenv("OMP_THREAD_LIMIT") != nullptr;
  while (!is_limited && count_threads() <= std::thread::hardware_concurrency()) std::this_thread::yield();
  for (int i = 0; i < 4; ++i) step(0.01);
  step(0.05);
  for (int i = 0; i < 4; ++i) step(0.01);
  EXPECT_TRUE(watch_.is_busy());
  step(0.01);
  EXPECT_FALSE(watch_.is_busy());
}

TEST_F(CoreWatchTest, LooksSeldom) {
  for (int i = 0; i < 1000; ++i) {
    watch_.look();
    clock_.sleep_ms(1);
  }
  EXPECT_EQ(num_looks_, 10);
}

TEST(ThreadTimes, GrowWithWork) {
  const auto before = thread_times();
  if (!before) GTEST_SKIP() << "this system does not say how long threads wait";
  volatile double sum = 0;
  for (int i = 0; i < 20'000'000; ++i) sum = sum + i;
  EXPECT_GT(thread_times()->running_ns - before->running_ns, 1'000'000);
}

}  // namespace
}  // namespace tessera
