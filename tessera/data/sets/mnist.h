// MNIST in its IDX files (LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998):
// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte. Numbers are
// big-endian: 2051, images, rows, columns, then the pixels, row by row; 2049, labels, then a byte for each.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/files/file_system.h"
#include "tessera/data/dataset.h"

namespace tessera::data {

struct MnistOptions {
  // "train": the train files; "test": the t10k files; "" or "all": both, training images first.
  std::string usage = {};
  // These are as in SourceOptions; the order is shuffled unless told otherwise.
  int64_t num_samples = 0;
  bool shuffle = true;
  int64_t num_shards = 1;
  int64_t shard_id = 0;
  uint64_t seed = 0;
};

// Columns image u8[h,w,1], of h = w = 28 in MNIST itself, and label u32[]. Files of other sizes, as Fashion-MNIST's or
// smaller ones, are read as they say they are; the train and the t10k files must agree. The files stay mapped while the
// data set lives. Throws InvalidArgument naming the directory or file, and what was expected, when one is missing,
// truncated, compressed or of another format, or when images and labels differ in number.
Dataset mnist(FileSystem& files, const std::string& directory, const MnistOptions& options = {});
// Reads the same from the operating system's files.
Dataset mnist(const std::string& directory, const MnistOptions& options = {});

}  // namespace tessera::data
