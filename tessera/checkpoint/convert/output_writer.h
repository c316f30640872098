// OutputWriter: writes the files of a conversion, many in one pass over the sources, and compares what they are made of
// with the checksums in the source's manifests. Internal to this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/convert/conversion.h"
#include "tessera/checkpoint/convert/tensor_pass.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

class OutputWriter {
 public:
  struct Options {
    bool verify = true;  // source tensors that have a checksum
    int num_threads = 1;
    // Hears of the bytes of values that were written, from any thread.
    std::function<void(int64_t)> count;
  };
  // Files and sources must outlive the writer.
  OutputWriter(FileSystem& files, const SourceFiles& sources, Options options);

  // Writes the values of outputs[i] to files[i], called names[i], and returns the manifests, which say that
  // `world_size` files belong together. The caller syncs and closes. Throws InvalidArgument for damaged sources.
  std::vector<Manifest> write(std::span<const OutputFile> outputs, std::span<WritableFile* const> files,
                              std::span<const std::string> names, int64_t world_size);
  // Commits one file to `path`.
  void commit(const OutputFile& output, int64_t world_size, const std::string& path);
  // Hands the tensors of `output`, texts left out, to `sink`: one after the other, row-major and in pieces.
  void copy(const OutputFile& output, FunctionRef<void(std::span<const std::byte>)> sink);

 private:
  FileSystem& files_;
  const SourceFiles& sources_;
  const Options options_;
  PassPlanner planner_;
};

}  // namespace tessera::checkpoint
