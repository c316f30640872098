// A folder of folders of images, one for each class, as ImageNet and most others are handed out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/data/dataset.h"

namespace tessera::data {

struct ImageFolderOptions {
  // The extensions of the files that count, as they are written: ".jpg" is not ".JPG". None: all files.
  std::vector<std::string> extensions = {};
  // The labels of classes; others' images are left out. None: 0, 1, ... in the order of the folders' names.
  std::map<std::string, int32_t> class_indexing = {};
  // These are as in SourceOptions; the order is shuffled unless told otherwise.
  int64_t num_samples = 0;
  bool shuffle = true;
  int64_t num_shards = 1;
  int64_t shard_id = 0;
  uint64_t seed = 0;
};

// Columns image u8[kAnySize], the bytes of a file, and label i32[]. Images are those below `directory`'s folders, at
// any depth, in the order of their paths. map() makes them of one size, before batch():
//   image_folder(dir).map("image", {decode(), random_resized_crop(224), ...})
// A file is read when its sample is. Throws InvalidArgument naming the directory where it is missing, has no folders or
// no image in them, or where class_indexing names a folder that is not there.
Dataset image_folder(FileSystem& files, const std::string& directory, const ImageFolderOptions& options = {});
// Reads the same from the operating system's files.
Dataset image_folder(const std::string& directory, const ImageFolderOptions& options = {});

// The label of each folder below `directory`: what image_folder() gives them.
std::map<std::string, int32_t> image_classes(FileSystem& files, const std::string& directory,
                                             const ImageFolderOptions& options = {});

}  // namespace tessera::data
