// KernelCache: machine code of kernels, remembered on disk by what it was made of: text, architecture and the version
// of the compiler.
#pragma once

#include <optional>
#include <string>

namespace tessera::cuda {

class KernelCache {
 public:
  // Kept in `directory`, which is made when there is something to write; empty: nothing is kept.
  explicit KernelCache(std::string directory) : directory_(std::move(directory)) {}

  // The code of a text: found, or compiled and kept. A file that cannot be read or written is one that is not there.
  // Throws as compile_to_cubin does.
  std::string get(const std::string& text, const std::string& architecture) const;

 private:
  std::optional<std::string> find(const std::string& path, const std::string& key) const;
  void keep(const std::string& path, const std::string& key, const std::string& cubin) const;

  std::string directory_;
};

}  // namespace tessera::cuda
