#include "tessera/train/core/lasting_job_id.h"

#include "tessera/base/files/random_id.h"
#include "tessera/train/core/job_lines.h"

namespace tessera::train {
namespace {

constexpr const char* kKey = "job\t";  // of a line beside those of the trainings

}  // namespace

std::string find_lasting_job_id(cluster::Recovery& recovery) {
  return find_line(recovery.find_state(kSavedTrainings).value_or(""), kKey).value_or("");
}

std::string lasting_job_id(cluster::Recovery& recovery) {
  const std::string record = recovery.find_state(kSavedTrainings).value_or("");
  if (const auto known = find_line(record, kKey)) return *known;
  const std::string drawn = random_id();
  recovery.set_state(kSavedTrainings, with_line(record, kKey, drawn));
  return drawn;
}

}  // namespace tessera::train
