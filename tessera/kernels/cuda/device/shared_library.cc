#include "tessera/kernels/cuda/device/shared_library.h"

#include <dlfcn.h>

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
      name_ = name;
      handle_ = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (handle_ != nullptr) return;
      if (error_.empty() && folder.empty()) error_ = ::dlerror();
    }
  }
}

void* SharedLibrary::find(const char* name) const {
  void* found = ::dlsym(handle_, name);
  if (found == nullptr) throw IoError("cuda: {} has no {}: it is too old", name_, name);
  return found;
}

}  // namespace tessera::cuda
