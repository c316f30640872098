// A small data set in CIFAR-10's binary form, drawn instead of photographed: for demonstrations and tests that cannot
// download the real one.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/files/file_system.h"

namespace tessera::data {

struct SyntheticCifar10Options {
  int64_t train_records = 5000;  // at least 5, spread over five files
  int64_t test_records = 1000;   // at least 1
  uint64_t seed = 0;
};

// Writes data_batch_1.bin .. data_batch_5.bin, test_batch.bin and batches.meta.txt into `directory`, which is made when
// missing; files of these names are replaced. The ten classes are disc, ring, square, triangle, cross, horizontal,
// vertical and diagonal stripes, checkerboard and dots, each with a colour of its own that one picture in eight lacks;
// place, size, shades, background and noise differ from picture to picture. Classes come equally often, in random
// order. Equal options give equal bytes on every machine; test pictures share no draw with training pictures. Throws
// InvalidArgument for too few records, IoError when a file cannot be written.
void write_synthetic_cifar10(FileSystem& files, const std::string& directory,
                             const SyntheticCifar10Options& options = {});

}  // namespace tessera::data
