// TestFolder: a folder for the files of one test program, which no other process has. For tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace tessera {

class TestFolder {
 public:
  // Makes the folder below that of temporary files, by the program's name and this process's number; what one of the
  // same number has left there is removed.
  explicit TestFolder(const std::string& program)
      : path_(std::filesystem::temp_directory_path() / ("tessera-" + program + "-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  // Removes it with all that is in it.
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  // The path of a file or folder in it, which need not be there.
  std::string in(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera
