// ModelCore: what all parts of a model look at: its context, cells and options, its parallel mode and its values.
#pragma once

#include <memory>

#include "tessera/cluster/ranks/context.h"
#include "tessera/train/core/model_values.h"
#include "tessera/train/modes/mode.h"
#include "tessera/train/modes/trained_cells.h"
#include "tessera/train/options/model_options.h"

namespace tessera::train {

struct ModelCore {
  // Checks the options and warns of those without effect; makes the rest. Throws InvalidArgument for options that do
  // not fit one another, the mode or the ranks. Collective.
  ModelCore(cluster::Context& context, const TrainedCells& cells, const ModelOptions& options);
  ModelCore(const ModelCore&) = delete;
  ModelCore& operator=(const ModelCore&) = delete;

  session::Session& session() { return values->session(); }
  session::Session& bare_session() { return values->bare_session(); }
  // All ranks of a mode that is shared are about to do `what`, "begin of a training": one that does something else is
  // named at once, with what it does. Collective. An elastic job compares what its ranks are about to do by
  // require_same_as_job(), and goes on without who does not fit.
  void meet(const char* what) const;

  cluster::Context& context;
  TrainedCells cells;
  ModelOptions options;  // the seed is all ranks'
  std::unique_ptr<Mode> mode;
  std::unique_ptr<ModelValues> values;
};

}  // namespace tessera::train
