#include "tessera/executor/kernel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/executor/kernel_selection.h"

namespace tessera::executor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

KernelRequest request_of(int64_t size) {
  const TensorView view(nullptr, DType::kF32, {size, 3, 4, 4}, channels_last_strides({size, 3, 4, 4}));
  return {.op = "double",
          .inputs = {view},
          .outputs = {view},
          .attributes = {{"strides", Ints{1, 1}}, {"mode", std::string("a \"b\"")}},
          .num_threads = 2};
}

KernelMeasurement measurement_of(int64_t size, const std::string& chosen) {
  return {.request = request_of(size), .candidates = {{"usual", 12.5}, {"other", 10.25}}, .chosen = chosen};
}

// Refuses to create files.
class ReadOnlyFileSystem : public MemoryFileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned) override {
    ++attempts;
    throw IoError("cannot create {}: read-only", path);
  }
  int attempts = 0;
};

TEST(KernelTable, ReadsWhatItWroteAndKeepsWhatOthersWrote) {
  MemoryFileSystem files;
  KernelTable first("a machine");
  first.add(measurement_of(2, "other"));
  first.save(files, "cache");
  KernelTable second("a machine");
  second.add(measurement_of(5, "usual"));
  second.save(files, "cache");

  KernelTable read("a machine");
  read.load(files, "cache");
  ASSERT_EQ(read.measurements().size(), 2U);
  const auto* measurement = read.find(request_of(2));
  ASSERT_NE(measurement, nullptr);
  EXPECT_EQ(measurement->chosen, "other");
  EXPECT_THAT(measurement->candidates, ElementsAre(TimedKernel{"usual", 12.5}, TimedKernel{"other", 10.25}));
  EXPECT_EQ(measurement->request.attributes, request_of(2).attributes);
  EXPECT_EQ(read.find(request_of(3)), nullptr);
  EXPECT_EQ(read.to_json(), files.read_text(read.path_in("cache")));
}

TEST(KernelTable, TellsRequestsApartByAllThatTheySay) {
  KernelTable table("a machine");
  table.add(measurement_of(2, "other"));
  std::vector<KernelRequest> others(5, request_of(2));
  others[0].op = "triple";
  others[1].num_threads = 1;
  others[2].inputs[0].dtype = DType::kBF16;
  others[3].inputs[0].strides = dense_strides(others[3].inputs[0].shape);
  others[4].attributes.set("strides", Ints{2, 2});
  for (const auto& other : others) EXPECT_EQ(table.find(other), nullptr) << describe(other);
}

TEST(KernelTable, MachinesHaveFilesOfTheirOwn) {
  EXPECT_NE(KernelTable("a machine").path_in("cache"), KernelTable("another").path_in("cache"));
}

TEST(KernelTable, AFileThatCannotBeUsedIsLeftOutAndReplaced) {
  KernelTable foreign("another machine");
  foreign.add(measurement_of(2, "other"));
  KernelTable good("a machine");
  good.add(measurement_of(2, "usual"));
  auto newer = good.to_json();
  newer.replace(newer.find("\"format\": 3"), 11, "\"format\": 9");
  const auto whole = good.to_json();
  for (const auto& content :
       {std::string("{"), std::string("[1,2]"), foreign.to_json(), newer, whole.substr(0, whole.size() / 2)}) {
    MemoryFileSystem files;
    KernelTable table("a machine");
    files.create(table.path_in("cache"))->append(content);
    table.load(files, "cache");
    EXPECT_TRUE(table.measurements().empty()) << content;
    table.add(measurement_of(7, "other"));
    table.save(files, "cache");
    EXPECT_EQ(files.read_text(table.path_in("cache")), table.to_json());
  }
}

TEST(KernelTable, SaysWhyATextIsRefusedAndTakesNothingOfIt) {
  KernelTable table("a machine");
  KernelTable foreign("another machine");
  foreign.add(measurement_of(2, "other"));
  EXPECT_THAT([&] { table.merge_json(foreign.to_json()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("it is of \"another machine\", this machine is \"a machine\"")));
  EXPECT_THAT([&] { table.merge_json("{}"); }, ThrowsMessage<InvalidArgument>(HasSubstr("not a table of kernels")));
  EXPECT_TRUE(table.measurements().empty());
}

TEST(KernelTable, GivesUpAfterOneFailureToWrite) {
  ReadOnlyFileSystem files;
  KernelTable table("a machine");
  table.add(measurement_of(2, "other"));
  table.save(files, "cache");
  table.save(files, "cache");
  EXPECT_EQ(files.attempts, 1);
}

// Kernels of "double" that take so many milliseconds of a fake clock.
class MeasuredKernels : public testing::Test {
 protected:
  struct Kernel {
    int64_t milliseconds;
    int runs = 0;
    // Other processes take the core in so many first runs, which makes them longer by that.
    int num_disturbed = 0;
    int64_t disturbance = 0;
  };

  MeasuredKernels() : timer_(clock_, [this] { return preemptions_; }) {}

  PreparedKernel prepared(const std::string& name) {
    return {.name = name, .run = [this, name](const KernelArgs&) {
              Kernel& kernel = kernels_.at(name);
              const bool is_disturbed = kernel.runs++ < kernel.num_disturbed;
              preemptions_ += is_disturbed ? 1 : 0;
              clock_.sleep_ms(kernel.milliseconds + (is_disturbed ? kernel.disturbance : 0));
            }};
  }
  void add(const std::string& name, int64_t milliseconds) {
    const bool usual = kernels_.empty();
    kernels_[name] = {milliseconds};
    if (usual) {
      registry_.add("double", [this, name](const KernelRequest&) { return prepared(name); });
    } else {
      registry_.add_candidates("double", [this, name](const KernelRequest&) {
        return std::vector<KernelCandidate>{{name, [this, name] { return prepared(name); }}};
      });
    }
  }

  std::map<std::string, Kernel> kernels_;
  FakeClock clock_;
  int64_t preemptions_ = 0;
  KernelTimer timer_;
  KernelRegistry registry_;
  KernelTable table_{"a machine"};
};

TEST_F(MeasuredKernels, TheFastestIsChosenAndSlowOnesRunOnce) {
  add("usual", 4);
  add("slow", 80);
  add("fast", 3);
  const auto measured = timer_.measure(registry_, request_of(2));
  EXPECT_EQ(measured.chosen, "fast");
  EXPECT_THAT(measured.candidates,
              ElementsAre(TimedKernel{"usual", 4000}, TimedKernel{"slow", 80000}, TimedKernel{"fast", 3000}));
  EXPECT_EQ(kernels_.at("slow").runs, 1);
  EXPECT_GT(kernels_.at("fast").runs, 1);
}

TEST_F(MeasuredKernels, WhatComesLastIsNotTriedWhenTheFirstTakeLong) {
  add("usual", 20);
  add("fast", 10);
  add("slow", 80);
  add("fastest", 1);
  const auto measured = timer_.measure(registry_, request_of(2));
  EXPECT_EQ(measured.chosen, "fast");
  EXPECT_EQ(measured.candidates.size(), 3U);
  EXPECT_EQ(kernels_.at("fastest").runs, 0);
}

TEST_F(MeasuredKernels, OthersAreTriedBesideAUsualOneThatTakesLong) {
  add("usual", 500);
  add("fast", 300);
  add("fastest", 100);
  EXPECT_EQ(timer_.measure(registry_, request_of(2)).chosen, "fastest");
}

TEST_F(MeasuredKernels, RunsThatOthersDisturbDoNotCount) {
  add("usual", 4);
  add("fast", 3);
  kernels_.at("fast").num_disturbed = 2;
  kernels_.at("fast").disturbance = 200;
  const auto measured = timer_.measure(registry_, request_of(2));
  EXPECT_EQ(measured.chosen, "fast");
  EXPECT_EQ(measured.num_disturbed, 0);
  EXPECT_THAT(measured.candidates, ElementsAre(TimedKernel{"usual", 4000}, TimedKernel{"fast", 3000}));
}

TEST_F(MeasuredKernels, WhatIsAlwaysDisturbedIsMeasuredNoLongerThanWhatIsNot) {
  add("usual", 40);
  add("fast", 30);
  for (const auto* name : {"usual", "fast"}) kernels_.at(name).num_disturbed = 1000;
  const int64_t begin = clock_.monotonic_ns();
  const auto measured = timer_.measure(registry_, request_of(2));
  EXPECT_EQ(measured.num_disturbed, 1);
  EXPECT_LT(clock_.monotonic_ns() - begin, 500'000'000);
}

TEST_F(MeasuredKernels, ALaterSessionMeasuresAgainWhatWasDisturbedUntilItIsNotOrHasBeenThreeTimes) {
  add("usual", 4);
  add("fast", 3);
  auto files = std::make_unique<MemoryFileSystem>();
  const auto disturb = [&](int64_t usual, int64_t fast) {
    for (auto& [name, kernel] : kernels_) kernel = {kernel.milliseconds, 0, 1000, name == "fast" ? fast : usual};
  };
  const auto session = [&] {
    KernelTable table("a machine");
    table.load(*files, "cache");
    const bool knows = table.find(request_of(2)) != nullptr;
    if (!knows) table.add(timer_.measure(registry_, request_of(2)));
    table.save(*files, "cache");
    return std::pair(knows, *table.find(request_of(2)));
  };
  disturb(0, 90);
  EXPECT_EQ(session().second.chosen, "usual");
  disturb(50, 0);  // the usual one was better the first time, and that stays known
  const auto [knew, second] = session();
  EXPECT_FALSE(knew);
  EXPECT_EQ(second.num_disturbed, 2);
  EXPECT_THAT(second.candidates, ElementsAre(TimedKernel{"usual", 4000}, TimedKernel{"fast", 3000}));
  EXPECT_EQ(second.chosen, "fast");
  EXPECT_EQ(session().second.num_disturbed, 3);
  EXPECT_TRUE(session().first);

  files = std::make_unique<MemoryFileSystem>();
  disturb(0, 90);
  session();
  disturb(0, 0);
  for (auto& [name, kernel] : kernels_) kernel.num_disturbed = 0;
  EXPECT_EQ(session().second.num_disturbed, 0);
  EXPECT_TRUE(session().first);
}

TEST_F(MeasuredKernels, TheUsualOneStaysUnlessAnotherIsClearlyFaster) {
  add("usual", 40);
  add("fast", 39);
  EXPECT_EQ(timer_.measure(registry_, request_of(2)).chosen, "usual");
}

TEST_F(MeasuredKernels, NothingRunsWithoutAChoice) {
  add("usual", 4);
  const auto measured = timer_.measure(registry_, request_of(2));
  EXPECT_EQ(measured.chosen, "usual");
  EXPECT_EQ(kernels_.at("usual").runs, 0);
}

TEST_F(MeasuredKernels, ASelectionMeasuresEachRequestOnce) {
  add("usual", 4);
  add("fast", 1);
  const KernelSelection selection({&registry_}, 2, table_, KernelSelection::Unknown::kMeasure, clock_);
  EXPECT_EQ(selection.choose(request_of(2)).name, "fast");
  const int runs = kernels_.at("fast").runs;
  EXPECT_EQ(selection.choose(request_of(2)).name, "fast");
  EXPECT_EQ(kernels_.at("fast").runs, runs);
  EXPECT_EQ(table_.measurements().size(), 1U);
  EXPECT_TRUE(selection.finish_measuring());
  EXPECT_FALSE(selection.finish_measuring());
}

TEST_F(MeasuredKernels, ASelectionNotesWhatItDoesNotKnowAndTakesWhatItIsTold) {
  add("usual", 4);
  add("fast", 1);
  const KernelSelection selection({&registry_}, 2, table_, KernelSelection::Unknown::kNote, clock_);
  EXPECT_EQ(selection.choose(request_of(2)).name, "usual");
  EXPECT_EQ(selection.choose(request_of(2)).name, "usual");
  const auto noted = selection.take_noted();
  ASSERT_EQ(noted.size(), 1U);
  EXPECT_EQ(describe(noted[0]), describe(request_of(2)));
  EXPECT_TRUE(selection.take_noted().empty());
  table_.add({.request = request_of(2), .chosen = "fast"});
  EXPECT_EQ(selection.choose(request_of(2)).name, "fast");
  // Another machine's choice may be unknown here.
  table_.add({.request = request_of(2), .chosen = "of another machine"});
  EXPECT_EQ(selection.choose(request_of(2)).name, "usual");
  EXPECT_EQ(kernels_.at("usual").runs, 0);
}

}  // namespace
}  // namespace tessera::executor
