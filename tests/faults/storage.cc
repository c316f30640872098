#include "tests/faults/storage.h"

#include <cstdlib>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/checkpoint/policy.h"

namespace tessera::faults {

using namespace checkpoint;

int64_t sample_size(int64_t whole) {
  const char* value = std::getenv("TESSERA_TEST_FULL");
  return value != nullptr && std::string_view(value) == "1" ? whole : whole / 10;
}

std::vector<Entry> entries_of_step(int64_t step) {
  const auto value = static_cast<double>(step);
  return {Entry("w", Tensor::full({DType::kF32, {64}}, value)),
          Entry("moments.w", Tensor::full({DType::kBF16, {8}}, value))};
}

CheckpointInfo info_of_step(int64_t step) {
  return {.epoch = 1, .step_in_epoch = step, .step = step, .saved_at_ms = step, .job_id = "job"};
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

}  // namespace tessera::faults
