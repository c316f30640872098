#include "tests/parity/case_folder.h"

#include <bit>

#include "tessera/base/error.h"

namespace tessera::parity {
namespace {

static_assert(std::endian::native == std::endian::little, "the folder's files are little-endian");

// The dtypes that the format knows are named as ours are.
std::string name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8: return to_string(dtype);
    default: throw_unsupported_dtype(dtype, "parity folder");
  }
}

}  // namespace

CaseFolder::CaseFolder(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {
  files_.create_directories(directory_);
}

void CaseFolder::add(const Case& added) {
  nlohmann::json entry = added.facts;
  entry["name"] = added.name;
  entry["kind"] = added.kind;
  entry["limit"] = added.limit;
  auto& tensors = entry["tensors"] = nlohmann::json::object();
  for (const auto& [key, tensor] : added.tensors) {
    const std::string file = fmt::format("{}.bin", num_files_++);
    tensors[key] = {{"file", file}, {"dtype", name_of(tensor.dtype())}, {"shape", tensor.shape().to_vector()}};
    const auto written = files_.create(join_path(directory_, file));
    written->append(tensor.bytes());
    written->close();
  }
  cases_.push_back(std::move(entry));
}

void CaseFolder::close() {
  const nlohmann::json index = {{"format", 1}, {"cases", cases_}};
  files_.write_atomically(join_path(directory_, "index.json"), index.dump(1));
}

}  // namespace tessera::parity
