// SharedLibrary: a library that is opened while the program runs, where it is there.
#pragma once

#include <initializer_list>
#include <string>

namespace tessera::cuda {

class SharedLibrary {
 public:
  // The first of these names that is found: in the folders of TESSERA_CUDA_LIBRARIES, separated by colons, then where
  // the system looks, then in /usr/local/cuda/lib64. It stays open.
  explicit SharedLibrary(std::initializer_list<const char*> names);

  // Whether it is open.
  explicit operator bool() const { return handle_ != nullptr; }
  // The file, as it was named when it was opened.
  const std::string& name() const { return name_; }
  // Why it is not.
  const std::string& error() const { return error_; }
  // The address of a function. Throws IoError where the library has none of that name.
  void* find(const char* name) const;

 private:
  void* handle_ = nullptr;
  std::string name_;
  std::string error_;
  bool is_there_ = false;  // a file of one of the names, which cannot be opened
};

}  // namespace tessera::cuda
