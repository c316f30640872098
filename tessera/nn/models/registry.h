// The built-in networks by name, for programs that take one as an argument.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/cell.h"

namespace tessera::nn {

struct ModelInfo {
  std::string name;
  std::string doc;
  Shape input_shape;  // of one sample, without the batch: [3,224,224]
  std::function<std::unique_ptr<Cell>(int64_t num_classes)> make;
};

const std::vector<ModelInfo>& models();
// Throws InvalidArgument listing the names.
const ModelInfo& find_model(const std::string& name);
// Throws InvalidArgument for an unknown name and for fewer than one class.
std::unique_ptr<Cell> make_model(const std::string& name, int64_t num_classes);

}  // namespace tessera::nn
