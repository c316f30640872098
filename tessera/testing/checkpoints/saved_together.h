// A checkpoint for tests that three ranks saved into one directory, and its values in one file.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {

// f32[6,2] of 0, 1, ... 11; i32[4], all `step`; i64[] `step`.
struct ValuesOfThreeRanks {
  Tensor w{DType::kF32, {6, 2}};
  Tensor b;
  Tensor count;
  explicit ValuesOfThreeRanks(int64_t step)
      : b(Tensor::full({DType::kI32, {4}}, static_cast<double>(step))),
        count(Tensor::full({DType::kI64, {}}, static_cast<double>(step))) {
    for (size_t i = 0; i < 12; ++i) w.values<float>()[i] = static_cast<float>(i);
  }
};

inline CheckpointInfo info_of_three_ranks(int64_t step) {
  return {.epoch = 1, .step_in_epoch = step, .step = step, .world_size = 3};
}

// Each rank writes two rows of "w", rank 1 "b" and rank 2 "count", whole, as ranks do that hold the same. Without "w"
// nothing in the file of any rank shows that there is more. Returns the path of NAME.ckpt.
inline std::string save_together(FileSystem& files, const std::string& path, int64_t step, bool has_split = true) {
  const ValuesOfThreeRanks values(step);
  const auto messages = ThreadBarrier::run(3, [&](Barrier& barrier) {
    const int rank = barrier.rank();
    std::vector<Slice> slices;
    const auto add = [&](const std::string& name, const Tensor& value, std::optional<Region> region) {
      slices.push_back({name, value.type(), region, {}});
      if (region) slices.back().value = view_of(value.view(), *region);
    };
    const auto whole_on = [&](int owner, const Tensor& value) {
      return rank == owner ? std::optional(Region::whole(value.shape())) : std::nullopt;
    };
    if (has_split) add("w", values.w, Region{{2 * rank, 0}, {2, 2}});
    add("a", values.b, whole_on(0, values.b));
    add("b", values.b, whole_on(1, values.b));
    add("count", values.count, whole_on(2, values.count));
    save_slices(files, barrier, {.path = path, .together = {0, 1, 2}}, slices, info_of_three_ranks(step));
  });
  EXPECT_THAT(messages, testing::Each("no error"));
  return path;
}

// The same values in one file.
inline std::string save_whole(FileSystem& files, const std::string& path, int64_t step, bool has_split = true) {
  const ValuesOfThreeRanks values(step);
  std::vector<Entry> entries;
  if (has_split) entries.emplace_back("w", values.w);
  entries.emplace_back("a", values.b);
  entries.emplace_back("b", values.b);
  entries.emplace_back("count", values.count);
  return save(files, {.path = path}, entries, info_of_three_ranks(step));
}

}  // namespace tessera::checkpoint
