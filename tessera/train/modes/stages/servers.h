// Servers: the mode of a job in which the first ranks keep parameters and update them, as the first stage of two; the
// others train.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tessera/train/modes/stages/staged.h"

namespace tessera::comm {
class StretchReceiver;
}

namespace tessera::train {

class Servers : public Staged {
 public:
  explicit Servers(const ModeParts& parts);

  // Rows of tables, and of their optimizer's states, are on the servers alone: a rank that trains may not have room for
  // them.
  std::optional<mesh::Layout> first_layout(const nn::Parameter& value) const override;
  // What servers have is nowhere else.
  bool places_for_predictions() const override { return true; }

  std::unique_ptr<session::Executable> compile(session::Session& session, const ir::Graph& graph,
                                               const InputSpecs& inputs) const override;

 protected:
  static mesh::Sharding split_rows(const Shape& shape);
  // The trainable parameter that it is, or that it is a state of, of the parameter's shape; nullptr for any other.
  const nn::Parameter* parameter_of(const nn::Parameter& value) const;

  int64_t micro_batches() const override;
  void place(ir::Graph& graph) const override;
  std::set<std::string> served() const override;
  // Where each rank reaches the values of all others, and no row lies in a file of a server's own.
  bool reads_rows_in_place(const session::Session& session) const override;
  // "2 servers keep 3 parameters, 4 ranks train".
  std::string who_works() const;
  // Servers, as many as the workers or not, look up in their rows, where workers share the batch.
  bool plans_each_stage() const override { return true; }
  // Servers share the rows of what they keep.
  void adapt(compiler::WithinStage& within, int stage) const override;
  session::PipelinedOptions pipelined(const ir::Graph&) const override;
  void say(const session::PipelinedStep&, const std::string&) const override;

 private:
  const comm::StretchReceiver* shared_world() const;
  void say_memory(const session::Session& session, const std::string& graph) const;

  mutable std::optional<bool> are_in_reach_;  // all ranks' values, for all ranks, once they have said so
};

}  // namespace tessera::train
