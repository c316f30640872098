#include "tessera/kernels/cuda/device/shared_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <vector>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/device/cuda_settings.h"

namespace tessera::cuda {

SharedLibrary::SharedLibrary(std::initializer_list<const char*> names) {
  std::vector<std::string> folders;
  for (const auto& folder : cuda_settings().library_folders) folders.push_back(folder + "/");
  folders.emplace_back();
  folders.emplace_back("/usr/local/cuda/lib64/");
  for (const auto& folder : folders) {
    for (const char* name : names) {
      name_ = folder + name;
      handle_ = ::dlopen(name_.c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (handle_ != nullptr) return;
      // Why one that is there cannot be opened says more than that another one is not there.
      const std::string error = ::dlerror();
      const bool is_there = !folder.empty() && ::access(name_.c_str(), F_OK) == 0;
      if (error_.empty() ? is_there || folder.empty() : is_there && !is_there_) error_ = error;
      is_there_ = is_there_ || is_there;
    }
  }
}

void* SharedLibrary::find(const char* name) const {
  void* found = ::dlsym(handle_, name);
  if (found == nullptr) {
    throw IoError("cuda: {} has no function {}: it is too old, or another library of that name", name_, name);
  }
  return found;
}

}  // namespace tessera::cuda
