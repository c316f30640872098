#include "tessera/compiler/cost/machines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/text_file.h"

namespace tessera::compiler {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

// Products of f64 are those of the tensor cores; f32 has none that does not round.
std::map<DType, double> product_tflops(double f32, double f64, double half) {
  return {{DType::kF32, f32 * kTera},
          {DType::kF64, f64 * kTera},
          {DType::kBF16, half * kTera},
          {DType::kF16, half * kTera}};
}

// Half types are computed in f32.
std::map<DType, double> vector_tflops(double f32, double f64) { return product_tflops(f32, f64, f32); }

std::vector<DataSheet> make_sheets() {
  const DataSheet h100{.name = "h100-80gb",
                       .product_flops = product_tflops(67, 67, 989.4),
                       .tf32_flops = 494.7 * kTera,
                       .vector_flops = vector_tflops(67, 34),
                       .memory_bytes_per_second = 3.35 * kTera,
                       .memory_bytes = 80 * kGiga,
                       .device_link_bytes_per_second = 450 * kGiga,
                       .host_link_bytes_per_second = 64 * kGiga,
                       .network_bytes_per_second = 50 * kGiga};
  DataSheet h200 = h100;
  h200.name = "h200-141gb";
  h200.memory_bytes_per_second = 4.8 * kTera;
  h200.memory_bytes = 141 * kGiga;
  return {{.name = "a100-80gb",
           .product_flops = product_tflops(19.5, 19.5, 312),
           .tf32_flops = 156 * kTera,
           .vector_flops = vector_tflops(19.5, 9.7),
           .memory_bytes_per_second = 2.039 * kTera,
           .memory_bytes = 80 * kGiga,
           .device_link_bytes_per_second = 300 * kGiga,
           .host_link_bytes_per_second = 32 * kGiga,
           .network_bytes_per_second = 25 * kGiga},
          {.name = "b200-180gb",
           .product_flops = product_tflops(80, 40, 2250),
           .tf32_flops = 1100 * kTera,
           .vector_flops = vector_tflops(80, 40),
           .memory_bytes_per_second = 8 * kTera,
           .memory_bytes = 180 * kGiga,
           .device_link_bytes_per_second = 900 * kGiga,
           .host_link_bytes_per_second = 64 * kGiga,
           .network_bytes_per_second = 50 * kGiga},
          h100,
          h200};
}

std::map<DType, double> scaled(const std::map<DType, double>& speeds, double share) {
  std::map<DType, double> shares;
  for (const auto& [dtype, speed] : speeds) shares[dtype] = share * speed;
  return shares;
}

}  // namespace

std::span<const DataSheet> data_sheets() {
  static const std::vector<DataSheet> sheets = make_sheets();
  return sheets;
}

MachineProfile profile_of(const DataSheet& sheet, const SheetFactors& factors) {
  return {.name = sheet.name,
          .flops_per_second = scaled(sheet.product_flops, factors.products),
          .convolution_flops_per_second = scaled(sheet.product_flops, factors.convolutions),
          .vector_flops_per_second = scaled(sheet.vector_flops, factors.vectors),
          .tf32_flops_per_second = factors.products * sheet.tf32_flops,
          .tf32_convolution_flops_per_second = factors.convolutions * sheet.tf32_flops,
          .memory_bytes_per_second = factors.memory_speed * sheet.memory_bytes_per_second,
          .kernel_overhead_seconds = factors.kernel_overhead_seconds,
          .ranks_per_host = sheet.devices_per_host,
          .intra_host = {factors.links * sheet.device_link_bytes_per_second, factors.device_latency_seconds},
          .inter_host = {factors.links * sheet.network_bytes_per_second, factors.network_latency_seconds},
          .host_link = {factors.links * sheet.host_link_bytes_per_second, factors.host_latency_seconds},
          .communication_load = factors.communication_load,
          .memory_bytes = static_cast<int64_t>(factors.memory * sheet.memory_bytes)};
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const DataSheet& sheet : data_sheets()) names.push_back(sheet.name);
  return names;
}

std::optional<MachineProfile> find_machine(const std::string& name) {
  const auto sheets = data_sheets();
  const auto it =
      std::find_if(sheets.begin(), sheets.end(), [&](const DataSheet& sheet) { return sheet.name == name; });
  if (it == sheets.end()) return std::nullopt;
  return profile_of(*it);
}

MachineProfile read_machine(FileSystem& files, const std::string& name_or_path) {
  if (auto machine = find_machine(name_or_path)) return std::move(*machine);
  if (!files.exists(name_or_path)) {
    throw IoError("machine \"{}\": there is no such file, and no machine of that name; there are: {}", name_or_path,
                  fmt::join(machine_names(), ", "));
  }
  return parse_profile(read_settings(files, name_or_path, "machine profile"), name_or_path);
}

}  // namespace tessera::compiler
