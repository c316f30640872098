// Who saves what of a training.
#pragma once

namespace tessera::train {

enum class SaveForm {
  kAlone,   // this rank, all its values, without the others
  kOwn,     // each rank all its values, into a directory of its own; they fail together
  kWhole,   // one rank of each directory, whole values, which the others send
  kSlices,  // each rank its slices
};

}  // namespace tessera::train
