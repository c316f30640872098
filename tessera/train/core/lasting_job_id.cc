#include "tessera/train/core/lasting_job_id.h"

#include "tessera/base/files/random_id.h"
#include "tessera/train/core/job_lines.h"

namespace tessera::train {
namespace {

constexpr const char* kState = "checkpoints";  // of the job: beside this line, one for each training that saves
constexpr const char* kKey = "job\t";

}  // namespace

std::string find_lasting_job_id(cluster::Recovery& recovery) {
  return find_line(recovery.find_state(kState).value_or(""), kKey).value_or("");
}

std::string lasting_job_id(cluster::Recovery& recovery) {
  const std::string record = recovery.find_state(kState).value_or("");
  if (const auto known = find_line(record, kKey)) return *known;
  const std::string drawn = random_id();
  recovery.set_state(kState, with_line(record, kKey, drawn));
  return drawn;
}

}  // namespace tessera::train
