// Safetensors files, in and out: as tensors, and as checkpoints. safetensors_header.h says what they are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/read/source_file.h"

namespace tessera::checkpoint {

// All tensors of a file, by name, in the order of their places.
std::vector<std::pair<std::string, Tensor>> load_safetensors(FileSystem& files, const std::string& path);
// Writes tensors, in the order given; texts become metadata. The file appears when it is complete. Throws
// InvalidArgument when the name does not end in ".safetensors" or a name occurs twice.
void save_safetensors(FileSystem& files, const std::string& path, std::span<const Entry> entries);

// Writes the tensors of a checkpoint, each as a whole, to one safetensors file, which appears when it is complete. A
// directory is joined from its rank_N folders by `strategy_file` ("": by its manifests, or the one file of rank 0).
// Texts become metadata, appended numbers tensors like others. Returns the paths of the checkpoint's files.
std::vector<std::string> export_safetensors(FileSystem& files, const std::string& checkpoint, const std::string& path,
                                            const std::string& strategy_file = "");
// Writes a .ckpt file with its manifest of the tensors of a safetensors file.
void import_safetensors(FileSystem& files, const std::string& path, const std::string& checkpoint_path);

}  // namespace tessera::checkpoint
