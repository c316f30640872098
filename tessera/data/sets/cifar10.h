// CIFAR-10 in its binary form (Krizhevsky, "Learning multiple layers of features from tiny images", 2009): files
// data_batch_1.bin .. data_batch_5.bin and test_batch.bin of 3073-byte records: one label byte 0 .. 9, then 32 x 32
// bytes of red, of green, of blue, row by row.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/data/dataset.h"

namespace tessera::data {

struct Cifar10Options {
  // "train": the data_batch files in order; "test": test_batch; "" or "all": both, training records first.
  std::string usage = {};
  // These are as in SourceOptions; the order is shuffled unless told otherwise.
  int64_t num_samples = 0;
  bool shuffle = true;
  int64_t num_shards = 1;
  int64_t shard_id = 0;
  uint64_t seed = 0;
};

// Columns image u8[32,32,3] (height, width, RGB) and label u32[]. A file may hold any number of records but none, and
// data_batch_6.bin and later ones are read too. The files stay mapped while the data set lives. Throws InvalidArgument
// naming the directory or file, its size and what was expected when something is missing, truncated or no label.
Dataset cifar10(FileSystem& files, const std::string& directory, const Cifar10Options& options = {});
// Reads the same from the operating system's files.
Dataset cifar10(const std::string& directory, const Cifar10Options& options = {});

}  // namespace tessera::data
