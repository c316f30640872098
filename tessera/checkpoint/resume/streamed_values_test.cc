// Values that the host has nowhere in its memory: they are saved to the same bytes as others, piece by piece, and what
// a checkpoint holds reaches them region by region.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>

#include "tessera/checkpoint/format/element_stream.h"
#include "tessera/checkpoint/format/element_target.h"
#include "tessera/checkpoint/format/region_runs.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Stands for a value on a device: hands its elements out in pieces of a few.
class StreamedTensor final : public ElementStream {
 public:
  explicit StreamedTensor(Tensor tensor) : tensor_(std::move(tensor)) {}
  const Type& type() const override { return tensor_.type(); }
  void read(const Region& region, Sink sink) const override {
    const Tensor part = Tensor::copy_of(view_of(tensor_.view(), region));
    const size_t step = 3 * size_bytes(type().dtype);
    for (auto left = part.bytes(); !left.empty(); left = left.subspan(std::min(step, left.size()))) {
      sink(left.first(std::min(step, left.size())));
    }
  }

 private:
  Tensor tensor_;
};

// The same as a place to load to.
class TakingTensor final : public ElementTarget {
 public:
  explicit TakingTensor(const Type& type) : tensor_(Tensor::zeros(type)) {}
  void write(const Region& region, std::span<const std::byte> elements) override {
    const std::lock_guard lock(mutex_);
    Tensor part(tensor_.dtype(), region.shape);
    ASSERT_EQ(part.bytes().size(), elements.size());
    std::memcpy(part.bytes().data(), elements.data(), elements.size());
    copy_elements(part.view(), view_of(tensor_.view(), region));
    ++num_writes_;
  }
  const Tensor& tensor() const { return tensor_; }
  int num_writes() const { return num_writes_; }

 private:
  std::mutex mutex_;
  Tensor tensor_;
  int num_writes_ = 0;
};

Tensor numbered_elements(const Type& type) {
  Tensor values(DType::kF64, type.shape);
  const auto at = values.values<double>();
  for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<double>(i % 100);
  return values.cast(type.dtype);
}

const std::vector<Type> kTypes{{DType::kF32, {5, 7, 2}}, {DType::kF64, {}},     {DType::kBF16, {33}},
                               {DType::kF16, {3, 3}},    {DType::kI64, {2, 2}}, {DType::kBool, {9}},
                               {DType::kI32, {0, 4}},    {DType::kU8, {17}}};

Entry streamed_entry(const std::string& name, const Tensor& tensor, const Region& region) {
  Entry entry(name, TensorView(nullptr, Type{tensor.dtype(), region.shape}));
  entry.streamed = StreamedRegion{std::make_shared<StreamedTensor>(tensor), region};
  return entry;
}

TEST(StreamedValues, AreSavedToTheBytesOfOthers) {
  std::vector<Entry> plain;
  std::vector<Entry> streamed;
  for (size_t i = 0; i < kTypes.size(); ++i) {
    const Tensor tensor = numbered_elements(kTypes[i]);
    plain.emplace_back(fmt::format("v{}", i), tensor);
    streamed.push_back(streamed_entry(fmt::format("v{}", i), tensor, Region::whole(tensor.shape())));
  }
  MemoryFileSystem files;
  save(files, {.path = "plain.ckpt"}, plain, {});
  save(files, {.path = "streamed.ckpt"}, streamed, {});
  EXPECT_EQ(files.read_text("streamed.ckpt"), files.read_text("plain.ckpt"));
}

TEST(StreamedValues, AreSavedAsRegionsToTheBytesOfOthers) {
  const Tensor tensor = numbered_elements({DType::kF32, {6, 8}});
  const Tensor row = numbered_elements({DType::kF32, {1, 8}});
  const std::vector<Region> regions{{{2, 0}, {3, 8}}, {{0, 3}, {6, 4}}, {{1, 1}, {2, 2}}};
  MemoryFileSystem files;
  const auto save_as = [&](const std::string& name, bool is_streamed) {
    const auto errors = ThreadBarrier::run(1, [&](Barrier& barrier) {
      std::vector<Slice> slices;
      const auto add = [&](const Tensor& of, const Region& region, bool without_first_dim) {
        Slice& slice = slices.emplace_back();
        slice = {fmt::format("s{}", slices.size()), of.type(), region, view_of(of.view(), region), without_first_dim};
        if (!is_streamed) return;
        slice.value = TensorView(nullptr, slice.value.type());
        slice.streamed = StreamedRegion{std::make_shared<StreamedTensor>(of), region};
      };
      for (const Region& region : regions) add(tensor, region, false);
      add(row, Region::whole(row.shape()), true);
      save_slices(files, barrier, {.path = name, .together = {0}}, slices, {});
    });
    EXPECT_THAT(errors, testing::Each("no error"));
  };
  save_as("plain.ckpt", false);
  save_as("streamed.ckpt", true);
  EXPECT_EQ(files.read_text("streamed.ckpt"), files.read_text("plain.ckpt"));
}

TEST(StreamedValues, AreReadToMemoryOfAnyStrides) {
  const Tensor tensor = numbered_elements({DType::kI32, {4, 6}});
  const Region region{{1, 2}, {3, 3}};
  const StreamedRegion streamed{std::make_shared<StreamedTensor>(tensor), region};
  const Tensor expected = Tensor::copy_of(view_of(tensor.view(), region));
  const Tensor dense(streamed.type());
  read_to(streamed, dense.view());
  EXPECT_TRUE(bit_equal(dense, expected));
  const Tensor wide = Tensor::zeros({DType::kI32, {5, 5}});
  const TensorView part = view_of(wide.view(), {{1, 1}, {3, 3}});
  read_to(streamed, part);
  EXPECT_TRUE(bit_equal(Tensor::copy_of(part), expected));
}

TEST(StreamedValues, TakeWhatACheckpointHolds) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < kTypes.size(); ++i) entries.emplace_back(fmt::format("v{}", i), numbered_elements(kTypes[i]));
  // Several pieces of what is read at a time.
  const Tensor large = numbered_elements({DType::kF32, {300, 1000}});
  entries.emplace_back("large", large);
  MemoryFileSystem files;
  save(files, {.path = "x.ckpt"}, entries, {});
  const auto checkpoint = GlobalCheckpoint::open(files, "x.ckpt");
  std::deque<TakingTensor> targets;
  std::vector<Tensor> expected;
  std::vector<GlobalCheckpoint::Wanted> wanted;
  const auto want = [&](const std::string& name, const Tensor& whole, const Region& region, DType dtype) {
    auto& target = targets.emplace_back(Type{dtype, region.shape});
    expected.push_back(Tensor::copy_of(view_of(whole.view(), region)).cast(dtype));
    wanted.push_back(
        {.name = name, .region = region, .to = TensorView(nullptr, {dtype, region.shape}), .target = &target});
  };
  for (size_t i = 0; i < kTypes.size(); ++i) {
    want(fmt::format("v{}", i), numbered_elements(kTypes[i]), Region::whole(kTypes[i].shape), kTypes[i].dtype);
  }
  want("large", large, {{3, 5}, {290, 700}}, DType::kF32);
  want("large", large, {{0, 999}, {300, 1}}, DType::kF32);
  want("large", large, Region::whole(large.shape()), DType::kBF16);
  checkpoint.verify(wanted);
  for (const auto& target : targets) EXPECT_EQ(target.num_writes(), 0);
  checkpoint.read(wanted);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(bit_equal(targets[i].tensor(), expected[i])) << wanted[i].name;
}

TEST(StreamedValues, AreRefusedWhatIsDamaged) {
  MemoryFileSystem files;
  const Tensor tensor = numbered_elements({DType::kF32, {10, 10}});
  save(files, {.path = "x.ckpt"}, std::vector<Entry>{{"w", tensor}}, {});
  auto text = files.read_text("x.ckpt");
  text.back() ^= 1;
  overwrite(files, "x.ckpt", text);
  const auto checkpoint = GlobalCheckpoint::open(files, "x.ckpt");
  TakingTensor target(tensor.type());
  const std::vector<GlobalCheckpoint::Wanted> wanted{{.name = "w",
                                                      .region = Region::whole(tensor.shape()),
                                                      .to = TensorView(nullptr, tensor.type()),
                                                      .target = &target}};
  EXPECT_THAT([&] { checkpoint.verify(wanted); }, ThrowsMessage<InvalidArgument>(HasSubstr("is damaged")));
  EXPECT_EQ(target.num_writes(), 0);
  EXPECT_THAT([&] { checkpoint.read(wanted); }, ThrowsMessage<InvalidArgument>(HasSubstr("is damaged")));
}

TEST(RegionRuns, AreTheContiguousPartsOfARegionInOrder) {
  const auto runs = [](const Region& region, const Region& container) {
    std::vector<std::pair<int64_t, int64_t>> found;
    for_each_run(region, container,
                 [&](const Region& run) { found.emplace_back(offset_in(container, run), run.shape.num_elements()); });
    EXPECT_EQ(num_runs(region, container), std::ssize(found));
    return found;
  };
  using Runs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(runs(Region::whole({}), Region::whole({})), (Runs{{0, 1}}));
  EXPECT_EQ(runs({{1, 0, 0}, {2, 3, 4}}, Region::whole({5, 3, 4})), (Runs{{12, 24}}));
  EXPECT_EQ(runs({{1, 1, 0}, {2, 2, 4}}, Region::whole({5, 3, 4})), (Runs{{16, 8}, {28, 8}}));
  EXPECT_EQ(runs({{1, 1, 1}, {1, 2, 2}}, {{1, 0, 0}, {2, 3, 4}}), (Runs{{5, 2}, {9, 2}}));
}

}  // namespace
}  // namespace tessera::checkpoint
