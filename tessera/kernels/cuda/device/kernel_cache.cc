#include "tessera/kernels/cuda/device/kernel_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/base/files/random_id.h"
#include "tessera/base/random.h"
#include "tessera/kernels/cuda/device/driver.h"

namespace tessera::cuda {
namespace {

// What a file begins with; the key follows, then the code.
constexpr const char* kMagic = "tessera cuda kernel 1";

uint64_t second_hash(const std::string& text) { return hash_name("second " + text); }

}  // namespace

std::string KernelCache::get(const std::string& text, const std::string& architecture) const {
  if (directory_.empty()) return compile_to_cubin(text, architecture);
  // Of CUDA 13.0, whichever compiler of it is there: a kernel that was compiled elsewhere serves, too.
  const std::string key =
      fmt::format("{} {} {:016x}{:016x} {}", kMagic, architecture, hash_name(text), second_hash(text), text.size());
  const std::string path =
      fmt::format("{}/{}-{:016x}{:016x}.kernel", directory_, architecture, hash_name(text), second_hash(text));
  if (auto found = find(path, key)) return *found;
  auto cubin = compile_to_cubin(text, architecture);
  keep(path, key, cubin);
  return cubin;
}

std::optional<std::string> KernelCache::find(const std::string& path, const std::string& key) const {
  // Code that another user can have written is not loaded.
  struct ::stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_uid != ::geteuid() || (status.st_mode & 022) != 0) {
    return std::nullopt;
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream content;
  content << file.rdbuf();
  const std::string all = content.str();
  const std::string head = key + "\n";
  // The last eight digits are a sum of the code: a file that was cut off is none.
  if (!all.starts_with(head) || all.size() < head.size() + 8) return std::nullopt;
  const std::string cubin = all.substr(head.size(), all.size() - head.size() - 8);
  if (all.substr(all.size() - 8) != fmt::format("{:08x}", static_cast<uint32_t>(hash_name(cubin)))) return std::nullopt;
  return cubin;
}

void KernelCache::keep(const std::string& path, const std::string& key, const std::string& cubin) const {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  const std::string own = fmt::format("{}.{}", path, random_id());
  {
    std::ofstream file(own, std::ios::binary);
    file << key << "\n" << cubin << fmt::format("{:08x}", static_cast<uint32_t>(hash_name(cubin)));
    if (!file) {
      std::filesystem::remove(own, error);
      return;
    }
  }
  std::filesystem::permissions(own, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, error);
  std::filesystem::rename(own, path, error);
}

}  // namespace tessera::cuda
