// What the fault tests save and how they look at what is left: values that all show their step, so that no mixture of
// two steps can pass for one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/write/save.h"

namespace tessera::checkpoint::faults {

// TESSERA_TEST_FULL=1: `whole`; else a tenth.
int64_t sample_size(int64_t whole);

// f32[64] "w" = step + i / 64 and bf16[8] "moments.w" = step.
std::vector<checkpoint::Entry> entries_of_step(int64_t step);
checkpoint::CheckpointInfo info_of_step(int64_t step);
// "d/CKP-1_7.ckpt".
std::string path_of_step(int64_t step, const std::string& directory = "d");
// Saves it there, and nothing else.
std::string save_step(FileSystem& files, int64_t step, const std::string& directory = "d");
// The same, and then removes all but the newest `keep` verified ones.
void save_step_keeping(FileSystem& files, int64_t step, int64_t keep, const std::string& directory = "d");

// The same by ranks as threads, each its part of "w" into a file of its own, under one manifest; the first of them
// removes. Throws IoError with the first rank's message when one fails.
void save_step_in_slices(FileSystem& files, int64_t step, int num_ranks, const std::string& path, int64_t keep = 0);

// The step that a checkpoint's values, its appended number and its manifest all show; nullopt when they do not agree.
std::optional<int64_t> step_of(const checkpoint::Checkpoint& checkpoint);
// The step that a job would go on from; nullopt when it finds no verified one, or a mixture.
std::optional<int64_t> recovered_step(FileSystem& files, const std::string& directory = "d");

std::string with_flipped_bit(std::string bytes, size_t bit);

}  // namespace tessera::checkpoint::faults
