// Evaluation: the metrics of a model over a data set.
#pragma once

#include <map>
#include <string>

#include "tessera/data/dataset.h"
#include "tessera/train/batches.h"
#include "tessera/train/compiled_steps.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/options/train_options.h"

namespace tessera::train {

// Does what Model::eval says. Collective.
std::map<std::string, double> evaluate(ModelCore& core, CompiledSteps& steps, WholeBatches& whole_batches,
                                       const data::Dataset& dataset, const TrainOptions& options);

}  // namespace tessera::train
