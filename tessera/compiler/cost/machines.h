// The machines that have names: GPUs by the data sheets of their maker, for plans of jobs where nothing can be
// measured. A sheet's figures are what the hardware cannot exceed; what a step reaches of them are factors of our own.
// docs/simulation.md says where each figure is from.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/compiler/cost/machine_profile.h"

namespace tessera::compiler {

// What is published of a GPU and of the hosts that it stands in. Operations and bytes a second, without sparsity; of
// links what comes one way.
struct DataSheet {
  std::string name;                       // "h100-80gb"
  std::map<DType, double> product_flops;  // by the fastest units that compute in the dtype without rounding operands
  double tf32_flops = 0;                  // of products
  std::map<DType, double> vector_flops;   // of what is no product
  double memory_bytes_per_second = 0;
  double memory_bytes = 0;
  double device_link_bytes_per_second = 0;  // from the other GPUs of its host
  double host_link_bytes_per_second = 0;    // from the host's memory
  double network_bytes_per_second = 0;      // from other hosts, for each GPU
  int devices_per_host = 8;
};

// What is assumed of all of them. The first four and `links` are shares of a sheet's figures.
struct SheetFactors {
  double products = 0.7;
  double convolutions = 0.5;  // of the figure for products
  double vectors = 0.5;
  double memory_speed = 0.9;
  double links = 0.8;
  double memory = 0.95;  // the rest is the driver's, the libraries', and scratch memory that plans do not count
  double kernel_overhead_seconds = 2e-6;  // of a kernel in a recorded step
  double device_latency_seconds = 5e-6;
  double network_latency_seconds = 10e-6;
  double host_latency_seconds = 10e-6;
  double communication_load = 0.1;  // collectives take some of a GPU's units
};

// In the order of their names.
std::span<const DataSheet> data_sheets();

// A machine of such GPUs, one for each rank; its name is the sheet's.
MachineProfile profile_of(const DataSheet& sheet, const SheetFactors& factors = {});

// The names of the machines that are built in: those of the data sheets.
std::vector<std::string> machine_names();
// Finds the machine of that name; nullopt where there is none.
std::optional<MachineProfile> find_machine(const std::string& name);

// The machine of that name, or else the profile in that file. Throws IoError where there is neither, naming the
// machines that there are, and as parse_profile does.
MachineProfile read_machine(FileSystem& files, const std::string& name_or_path);

}  // namespace tessera::compiler
