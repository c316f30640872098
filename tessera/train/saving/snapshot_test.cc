// A copy that is made beside the next steps holds the values of its own step, whenever the copying is done.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <thread>

#include "tessera/base/random.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tessera/train/saving/snapshot.h"

namespace tessera::train {
namespace {

bool is_all(const Tensor& tensor, double value) { return bit_equal(tensor, Tensor::full(tensor.type(), value)); }

// --- the copying -----------------------------------------------------------------------------------------------------

// A value of several slices, one of a few bytes and one that is not dense.
class SnapshotOfThree : public testing::Test {
 protected:
  SnapshotOfThree() {
    large_ = Tensor::full({DType::kF32, {3, 1 << 18}}, 1);
    small_ = Tensor::full({DType::kI64, {5}}, 2);
    columns_ = Tensor::full({DType::kF32, {4, 6}}, 3);
    views_ = {large_.view(), small_.view(), {columns_.view().data, DType::kF32, {6, 4}, {1, 6}}};
    for (const auto& view : views_) types_.push_back(view.type());
  }
  std::vector<Tensor> begin(Snapshot& snapshot) {
    auto copies = snapshot.allocate(types_);
    std::vector<checkpoint::ViewCopy> pairs;
    for (size_t i = 0; i < views_.size(); ++i) {
      fill(copies[i].view(), 9);
      pairs.push_back({views_[i], copies[i].view()});
    }
    snapshot.begin(pairs);
    return copies;
  }
  static void fill(const TensorView& view, double value) {
    copy_elements(Tensor::full(view.type(), value).view(), view);
  }

  Tensor large_;
  Tensor small_;
  Tensor columns_;
  std::vector<TensorView> views_;
  std::vector<Type> types_;
};

TEST_F(SnapshotOfThree, HoldsWhatAValueWasBeforeItChanged) {
  for (const bool in_background : {false, true}) {
    Snapshot snapshot;
    snapshot.set_copies_in_background(in_background);
    const auto copies = begin(snapshot);
    std::thread background([&] { snapshot.finish_in_background(); });
    for (const size_t changed : {1, 0, 2}) {
      snapshot.finish(views_[changed]);
      fill(views_[changed], 7);
    }
    background.join();
    EXPECT_TRUE(is_all(copies[0], 1));
    EXPECT_TRUE(is_all(copies[1], 2));
    EXPECT_TRUE(is_all(copies[2], 3));
    fill(views_[0], 1);
    fill(views_[1], 2);
    fill(views_[2], 3);
  }
}

TEST_F(SnapshotOfThree, IsCopiedBySeveralThreadsBesideTheOneInTheBackground) {
  for (int round = 0; round < 20; ++round) {
    Snapshot snapshot;
    const auto copies = begin(snapshot);
    std::thread background([&] { snapshot.finish_in_background(); });
    for (const auto& view : views_) {
      snapshot.finish(view, ParallelFor(3));
      fill(view, 7);
    }
    background.join();
    EXPECT_TRUE(is_all(copies[0], 1));
    EXPECT_TRUE(is_all(copies[1], 2));
    EXPECT_TRUE(is_all(copies[2], 3));
    fill(views_[0], 1);
    fill(views_[1], 2);
    fill(views_[2], 3);
  }
}

TEST_F(SnapshotOfThree, CopiesOnlyWhatIsAboutToChange) {
  Snapshot snapshot;
  const auto copies = begin(snapshot);
  snapshot.finish(views_[1]);
  EXPECT_TRUE(is_all(copies[0], 9));
  EXPECT_TRUE(is_all(copies[1], 2));
  EXPECT_TRUE(is_all(copies[2], 9));
  snapshot.finish();
  EXPECT_TRUE(is_all(copies[0], 1));
  EXPECT_TRUE(is_all(copies[2], 3));
}

TEST_F(SnapshotOfThree, HasTheOneBesideItCopyWhatIsAboutToChange) {
  Snapshot snapshot;
  Snapshot beside;
  snapshot.set_beside(&beside);
  const auto copies = begin(beside);
  snapshot.finish(views_[1]);
  EXPECT_TRUE(is_all(copies[0], 9));
  EXPECT_TRUE(is_all(copies[1], 2));
  snapshot.finish();
  EXPECT_TRUE(is_all(copies[0], 1));
  EXPECT_TRUE(is_all(copies[2], 3));
}

// As a rank's child does when it ends, while the rank keeps a step for its recovery and saves nothing.
TEST_F(SnapshotOfThree, IsLeftToItsParentByAChildOfForkThatSeesTheMemoryOfTheCopyBesideIt) {
  const auto bytes = static_cast<size_t>(large_.type().size_bytes());
  void* shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const TensorView kept(shared, large_.type());
  fill(kept, 9);
  Snapshot saved;
  Snapshot beside;
  saved.set_beside(&beside);
  beside.begin(std::vector<checkpoint::ViewCopy>{{large_.view(), kept}});
  const pid_t child = ::fork();
  if (child == 0) {
    saved.finish(large_.view());
    saved.finish();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(is_all(Tensor::copy_of(kept), 9)) << "the child has copied";
  saved.finish();
  EXPECT_TRUE(is_all(Tensor::copy_of(kept), 1));
  ::munmap(shared, bytes);
}

TEST_F(SnapshotOfThree, KeepsItsMemory) {
  Snapshot snapshot;
  const void* memory = begin(snapshot)[0].view().data;
  const int64_t size = snapshot.size_bytes();
  EXPECT_GE(size, large_.size_bytes() + small_.size_bytes() + columns_.size_bytes());
  snapshot.finish();
  EXPECT_EQ(begin(snapshot)[0].view().data, memory);
  snapshot.finish();
  types_.resize(1);
  EXPECT_EQ(snapshot.allocate(types_)[0].view().data, memory);
  EXPECT_EQ(snapshot.size_bytes(), size);
}

// --- in training -----------------------------------------------------------------------------------------------------

struct Case {
  std::string name;
  int ranks;
  ParallelMode mode;
  bool integrated = true;
  int64_t accumulation = 1;
  bool skips = false;  // the step after the save is skipped
  bool splits = false;
};

class SavedBesideTheNextSteps : public testing::TestWithParam<std::tuple<Case, bool>> {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("tessera-snapshot-{}", ::getpid());
};

struct Mlp : nn::Cell {
  nn::Dense& up = child<nn::Dense>("up", 6, 33);
  nn::Dense& down = child<nn::Dense>("down", 33, 5);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::tanh(up(x))); }
};

Tensor numbers(const Shape& shape, uint64_t stream) {
  Tensor made(DType::kF32, shape);
  auto values = made.values<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal({.seed = 2, .stream = stream}, i);
  return made;
}

TEST_P(SavedBesideTheNextSteps, AreTheValuesOfTheStepBefore) {
  const auto& [form, in_background] = GetParam();
  run_ranks(form.ranks, [&, &form = form, in_background = in_background](cluster::Context& context) {
    Mlp network;
    if (form.splits) {
      network.up.shard("matmul", {{2, 1}, {2, 1}});
      network.down.shard("matmul", {{2, 2}, {1, 2}});
    }
    nn::MSELoss loss;
    nn::Adam optimizer({.learning_rate = 0.05});
    ModelOptions options{.parallel_mode = form.mode,
                         .gradient_accumulation_steps = form.accumulation,
                         .parallel_optimizer = form.splits,
                         .parallel_optimizer_threshold = 0};
    if (form.skips) options.loss_scale = nn::dynamic_loss_scale();
    Model model(context, network, &loss, &optimizer, options);
    model.snapshot().set_copies_in_background(in_background);
    const bool is_split = form.mode == ParallelMode::kDataParallel;
    const int64_t own = is_split ? mesh::balanced_part(12, context.size(), context.rank()).size : 12;
    uint64_t number = 0;
    const auto step = [&](float factor = 1) {
      Tensor x = numbers({own, 6}, ++number);
      x.values<float>()[0] *= factor;
      const Tensor y = numbers({own, 5}, 100 + number);
      for (int64_t i = 0; i < form.accumulation; ++i) model.train_step({x.view(), y.view()}, 12);
    };
    const bool is_own = form.mode == ParallelMode::kHybrid;
    const auto path = [&](const std::string& name) {
      return in(is_own ? fmt::format("{}/rank_{}/x", name, context.rank()) : name + "/x");
    };
    step();
    for (int round = 0; round < 2; ++round) {
      step();
      const auto blocking = path(fmt::format("blocking{}", round));
      const auto async = path(fmt::format("async{}", round));
      model.save_checkpoint(blocking, {.integrated = form.integrated});
      const auto before = model.value("up.weight").to_doubles();
      model.save_checkpoint(async, {.integrated = form.integrated, .async = true});
      const auto bytes = model.snapshot().size_bytes();
      if (form.skips) {
        step(std::numeric_limits<float>::infinity());
        EXPECT_TRUE(model.was_skipped());
      }
      step();
      step();
      model.finish_saves();
      EXPECT_NE(model.value("up.weight").to_doubles(), before);
      EXPECT_EQ(model.snapshot().size_bytes(), bytes);
    }
  });
  auto& files = FileSystem::local();
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < (form.mode == ParallelMode::kHybrid ? form.ranks : 1); ++rank) {
      const auto name = form.mode == ParallelMode::kHybrid ? fmt::format("/rank_{}/x.ckpt", rank) : "/x.ckpt";
      const auto blocking = checkpoint::GlobalCheckpoint::open(files, in(fmt::format("blocking{}", round)) + name);
      const auto async = checkpoint::GlobalCheckpoint::open(files, in(fmt::format("async{}", round)) + name);
      ASSERT_EQ(blocking.entries().size(), async.entries().size());
      for (const auto& entry : blocking.entries()) {
        EXPECT_TRUE(bit_equal(blocking.read_whole(entry.name), async.read_whole(entry.name))) << entry.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, SavedBesideTheNextSteps,
    testing::Combine(testing::Values(Case{"alone", 1, ParallelMode::kStandAlone},
                                     Case{"accumulated", 1, ParallelMode::kStandAlone, true, 3},
                                     Case{"skipped", 1, ParallelMode::kStandAlone, true, 1, true},
                                     Case{"data_parallel", 3, ParallelMode::kDataParallel},
                                     Case{"data_parallel_slices", 3, ParallelMode::kDataParallel, false},
                                     Case{"data_parallel_accumulated_and_skipped", 2, ParallelMode::kDataParallel,
                                          false, 2, true},
                                     Case{"hybrid", 2, ParallelMode::kHybrid, false},
                                     Case{"split", 4, ParallelMode::kSemiAuto, true, 1, false, true},
                                     Case{"split_slices", 4, ParallelMode::kSemiAuto, false, 1, false, true},
                                     Case{"split_accumulated", 4, ParallelMode::kSemiAuto, false, 2, false, true}),
                     testing::Bool()),
    [](const auto& info) {
      return std::get<0>(info.param).name + (std::get<1>(info.param) ? "" : "_at_the_last_moment");
    });

}  // namespace
}  // namespace tessera::train
