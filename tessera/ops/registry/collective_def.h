// CollectiveDef: all that anyone knows about one way in which ranks communicate: who does it, what it makes of the
// members' operands, what it costs, how a communicator does it. It is a column of the OpDef. The compiler, the
// executor, what ranks compare before they start, the documentation and the law tests ask its columns; none of them
// asks a collective for its name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/box.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {

// A node of a graph or a step of a schedule, as one member of its group has it. A bucket is one call of several
// operands and as many results. A second buffer is not among the operands.
struct CollectiveCall {
  const Attributes& attributes;
  std::vector<Type> inputs;
  std::vector<Type> outputs;

  int64_t group_size() const { return static_cast<int64_t>(attributes.get_ints("ranks").size()); }
  // This rank's place in the group.
  int64_t own() const { return attributes.get_int("rank_in_group"); }
};
CollectiveCall call_of(const ir::Graph& graph, const ir::Node& node);

// What goes from one member's operand to another's result, by place in the group. A box without elements is not sent.
struct ExchangeBoxes {
  std::vector<mesh::Box> send;     // inside the operand
  std::vector<mesh::Box> receive;  // inside the result
};

// What a member receives: `bytes` from all others alike, `bytes` from `sender`, or what `by_sender` says.
struct Traffic {
  int64_t bytes = 0;  // that the busiest member receives; not read where `by_sender` is set
  // The place of the only member that sends; it receives nothing.
  std::optional<int64_t> sender = {};
  // Where members send differently, how much each does, by place. What the rank keeps is at its own.
  std::vector<int64_t> by_sender = {};

  // What the member at this place receives, if it is not the only one that sends.
  int64_t received_bytes(int64_t own) const;
};

// Bytes that are copied on one rank between where values lie and what is sent or received in one piece.
struct Packed {
  int64_t bytes = 0;
  int64_t piece_bytes = 0;  // that lie together on both sides
};

// What a rank does by itself around a call: in the host's memory at once, on a device in a queue. What it returns is
// prepared: it may be called as often as one likes, and allocates nothing.
class OwnWork {
 public:
  virtual ~OwnWork() = default;
  // Copies from[i] to to[i], of equal shapes, one after another.
  virtual std::function<void()> copies(const std::vector<TensorView>& from,
                                       const std::vector<TensorView>& to) const = 0;
  // Fills a dense value with zeros.
  virtual std::function<void()> zeros(const TensorView& to) const = 0;
};
const OwnWork& work_of_host();

// A call with its memory. `inputs` end with the second buffer, where there is one.
struct CollectiveRun {
  const Attributes& attributes;
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  comm::Communicator& group;
  std::string who;  // for errors
  const OwnWork& own = work_of_host();
};

// A call that the law tests make, on as many ranks as there are shapes.
struct CollectiveExample {
  std::vector<Shape> operands;         // by rank
  std::vector<Attributes> attributes;  // by rank, or one for all; without those of the group
};

struct CollectiveDef {
  // What all ranks of a group do together; or one end of a message between this rank and `peer`.
  enum class Members { kAll, kSender, kReceiver };
  Members members = Members::kAll;
  bool is_transfer() const { return members != Members::kAll; }

  // The operands are reduced, as the attribute "reduction" says.
  bool reduces = false;
  // All members have the same result.
  bool gives_one = false;
  // Along the dim "dim", in which members may have different "sizes": the result has all operands, one behind the
  // other; or each member gets its piece of the operand.
  enum class Parts { kNone, kJoined, kCut };
  Parts parts = Parts::kNone;
  // Which boxes go where stands in its attributes, and may be wrong there.
  bool names_boxes = false;
  // Attributes that members may have different, beside "rank_in_group".
  std::vector<std::string> own_attributes = {};

  // Several of one group may travel together, as one call: side by side in a buffer in which the operands are made and
  // the results read (`in_place`), or packed into a second buffer, where "dims" and "sizes" are those of all.
  bool has_buckets = false;
  bool in_place = false;

  // How often a member waits for the others, and the bytes that one receives, for people: n ranks, and B bytes of the
  // largest of operand and result. docs/collectives.md has them in a table.
  int num_steps = 1;
  std::string received = {};
  std::function<Traffic(const CollectiveCall&)> traffic = {};
  // What moves where. Empty for transfers.
  std::function<ExchangeBoxes(const CollectiveCall&)> boxes = {};
  // Of the second buffer; 0, as where there is no function: none is needed.
  std::function<int64_t(const CollectiveCall&)> staging_bytes = {};
  // What is copied in and out of the second buffer by the member at place `own`.
  std::function<std::vector<Packed>(const CollectiveCall&, int64_t own)> packed = {};
  // What all members must have alike: shapes and settings.
  std::function<std::string(const CollectiveCall&)> agreement = {};
  // As calls of a communicator. All that depends only on shapes is computed at once; what is returned allocates
  // nothing.
  std::function<std::function<void()>(const CollectiveRun&)> prepare = {};
  std::vector<CollectiveExample> examples = {};
};

// Null for an operator that does not communicate. Throws InvalidArgument for one that is not known.
const CollectiveDef* collective_of(const std::string& op);
inline const CollectiveDef* collective_of(const ir::Node& node) { return collective_of(node.op); }
inline bool is_collective(const ir::Node& node) { return collective_of(node) != nullptr; }

}  // namespace tessera::ops
