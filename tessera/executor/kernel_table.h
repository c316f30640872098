// KernelTable: which kernel was measured to be the fastest for which request, on one kind of machine; remembered in a
// file (docs/kernels.md has its form). Not thread-safe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tessera/base/files/file_system.h"
#include "tessera/executor/kernel_measurement.h"

namespace tessera::executor {

class KernelTable {
 public:
  // `machine` says for which CPU and libraries the measurements hold.
  explicit KernelTable(std::string machine) : machine_(std::move(machine)) {}

  const std::string& machine() const { return machine_; }
  // nullptr when the request was not measured, and when load() found only a measurement that was disturbed and is worth
  // another try. Valid until the next add or merge.
  const KernelMeasurement* find(const KernelRequest& request) const;
  // Replaces what is known of an equal request; of a disturbed measurement that load() found, what was faster stays.
  void add(KernelMeasurement measurement);
  // The measurements in the order of operators and shapes.
  const std::map<std::string, KernelMeasurement>& measurements() const { return measurements_; }

  // JSON; equal tables give equal text.
  std::string to_json() const;
  // Adds all measurements of a text. Throws InvalidArgument when it is none of to_json's form, or another machine's;
  // then nothing was added.
  void merge_json(std::string_view text);

  // The file of this machine in a directory.
  std::string path_in(const std::string& directory) const;
  // Adds what the directory's file holds for this machine. A file that cannot be read or used is warned about and left
  // out; none is nothing unusual.
  void load(FileSystem& file_system, const std::string& directory);
  // Writes the table, with what others have written since, over the file, which is never seen half written. A failure
  // is warned about once; from then on it does nothing.
  void save(FileSystem& file_system, const std::string& directory);

 private:
  std::string machine_;
  std::map<std::string, KernelMeasurement> measurements_;  // by describe(request)
  std::set<std::string> doubtful_;                         // those of these that are to be measured again
  bool save_failed_ = false;
};

// Equal for equal requests: operator, operands with their strides, attributes, threads.
std::string describe(const KernelRequest& request);

}  // namespace tessera::executor
