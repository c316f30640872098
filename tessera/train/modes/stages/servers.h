// Servers: the mode of a job in which the first ranks keep parameters and update them, as the first stage of two; the
// others train.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "tessera/train/modes/stages/staged.h"

namespace tessera::train {

class Servers : public Staged {
 public:
  explicit Servers(const ModeParts& parts);

  // Rows of tables, and of their optimizer's states, are on the servers alone: a rank that trains may not have room for
  // them.
  std::optional<mesh::Layout> first_layout(const nn::Parameter& value) const override;
  // What servers have is nowhere else.
  bool places_for_predictions() const override { return true; }

 protected:
  static mesh::Sharding split_rows(const Shape& shape);
  // The trainable parameter that it is, or that it is a state of, of the parameter's shape; nullptr for any other.
  const nn::Parameter* parameter_of(const nn::Parameter& value) const;

  int64_t micro_batches() const override;
  void place(ir::Graph& graph) const override;
  std::set<std::string> served() const override;
  // Servers share the rows of what they keep. Where the workers are as many, one plan is for both: they share them,
  // too.
  void adapt(compiler::WithinStage& within, int size) const override;
  session::PipelinedOptions pipelined(const ir::Graph&) const override;
  void say(const session::PipelinedStep&, const std::string&) const override;
};

}  // namespace tessera::train
