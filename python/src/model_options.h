// The options of a Model as Python gives them: keywords and dicts of them, made from the one list that C++ has of them
// (tessera/train/options).
#pragma once

#include <string>

#include "python/src/bind.h"

namespace tessera::python {

// What `given` says, the defaults for the rest. Throws Python's TypeError naming a keyword that there is not, or a
// value of another type; InvalidArgument for one that is not allowed.
train::ModelOptions model_options(const nb::dict& given);

// The keywords as a signature has them, "parallel_mode: str = 'stand_alone', seed: int | None = None, ...".
std::string option_signature();

// A line for each keyword, "full_batch: Inputs are whole ...", and for each key of those that are dicts.
std::string option_help();

// By keyword: what it does ("doc"), and the parallel modes that read it ("modes": all, where none is named).
nb::dict options_as_dict();

}  // namespace tessera::python
