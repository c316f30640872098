#include "tests/faults/storage.h"

#include "tessera/base/error.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/write/checkpoint_config.h"
#include "tessera/checkpoint/write/retention.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/checkpoint/write/sharing.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tessera/testing/full.h"

namespace tessera::checkpoint::faults {

int64_t sample_size(int64_t whole) { return is_full_test() ? whole : whole / 10; }

std::vector<Entry> entries_of_step(int64_t step) {
  Tensor w(DType::kF32, {64});
  for (size_t i = 0; i < 64; ++i) w.values<float>()[i] = static_cast<float>(step) + static_cast<float>(i) / 64;
  return {Entry("w", w), Entry("moments.w", Tensor::full({DType::kBF16, {8}}, static_cast<double>(step)))};
}

CheckpointInfo info_of_step(int64_t step) {
  return {
      .epoch = 1, .step_in_epoch = step, .step = step, .saved_at_ms = step, .job_id = "job", .training_id = "training"};
}

std::string path_of_step(int64_t step, const std::string& directory) {
  return join_path(directory, checkpoint_name("CKP", 1, step));
}

std::string save_step(FileSystem& files, int64_t step, const std::string& directory) {
  return save(files, {.path = path_of_step(step, directory), .append_info = {Entry::number("step_num", step)}},
              entries_of_step(step), info_of_step(step));
}

void save_step_keeping(FileSystem& files, int64_t step, int64_t keep, const std::string& directory) {
  save_step(files, step, directory);
  Retention(files, directory, "CKP", validated({.keep_checkpoint_max = keep})).apply();
}

void save_step_in_slices(FileSystem& files, int64_t step, int num_ranks, const std::string& path, int64_t keep) {
  const mesh::Mesh mesh({{"data", num_ranks}});
  const auto directory = parent_path(path);
  const auto messages = ThreadBarrier::run(num_ranks, [&](Barrier& barrier) {
    const auto together = ranks_of_directory(files, barrier, directory);
    const auto entries = entries_of_step(step);
    const std::vector<HeldValue> values = {{entries[0].name, entries[0].owner.type(), mesh::Layout{mesh, {{{0}}, {}}}},
                                           {entries[1].name, entries[1].owner.type(), std::nullopt}};
    const auto regions = written_regions(values, together, barrier.rank());
    std::vector<Slice> slices;
    for (size_t i = 0; i < values.size(); ++i) {
      slices.push_back({values[i].name, values[i].type, regions[i], {}});
      if (regions[i]) slices.back().value = view_of(entries[i].value, *regions[i]);
    }
    save_slices(files, barrier, {.path = path, .append_info = {Entry::number("step_num", step)}, .together = together},
                slices, info_of_step(step));
    if (keep > 0 && barrier.rank() == together[0]) {
      Retention(files, directory, "CKP", validated({.keep_checkpoint_max = keep})).apply();
    }
  });
  for (const auto& message : messages) {
    if (message != "no error") throw IoError(message);
  }
}

std::optional<int64_t> step_of(const Checkpoint& checkpoint) {
  const auto* number = checkpoint.find("step_num");
  if (number == nullptr || !checkpoint.manifest()) return std::nullopt;
  const auto step = static_cast<int64_t>(number->read().item());
  if (checkpoint.manifest()->info != info_of_step(step)) return std::nullopt;
  for (const auto& expected : entries_of_step(step)) {
    const auto* entry = checkpoint.find(expected.name);
    if (entry == nullptr || !bit_equal(entry->read(), expected.owner)) return std::nullopt;
  }
  return step;
}

std::optional<int64_t> recovered_step(FileSystem& files, const std::string& directory) {
  const auto choice = find_newest(files, directory, "CKP");
  if (!choice.found() || choice.state != Verified::kYes) return std::nullopt;
  return step_of(load(files, choice.path));
}

std::string with_flipped_bit(std::string bytes, size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  return bytes;
}

}  // namespace tessera::checkpoint::faults
