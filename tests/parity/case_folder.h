// CaseFolder writes the folder that compare.py reads, see README.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/tensor/tensor.h"

namespace tessera::parity {

struct Case {
  std::string name;
  std::string kind;
  double limit = 0;  // the deviation that it may have
  nlohmann::json facts = nlohmann::json::object();
  std::vector<std::pair<std::string, Tensor>> tensors = {};
};

class CaseFolder {
 public:
  // The directory is made when missing. `files` outlives the folder.
  CaseFolder(FileSystem& files, std::string directory);

  // Writes the tensors' files. Throws IoError.
  void add(const Case& added);
  // Writes index.json. Nothing can be compared before.
  void close();
  int num_cases() const { return static_cast<int>(cases_.size()); }

 private:
  FileSystem& files_;
  std::string directory_;
  nlohmann::json cases_ = nlohmann::json::array();
  int num_files_ = 0;
};

}  // namespace tessera::parity
