#include "tessera/compiler/rank_classes.h"

#include <algorithm>
#include <compare>
#include <map>
#include <set>

#include "tessera/compiler/partition/exchange_facts.h"
#include "tessera/ops/registry/collective_def.h"

namespace tessera::compiler {
namespace {

using ir::NodeId;
using ir::ValueId;

// Different keys, numbered from 0.
template <typename Key>
class Numbers {
 public:
  int of(const Key& key) { return numbers_.emplace(key, static_cast<int>(numbers_.size())).first->second; }
  int count() const { return static_cast<int>(numbers_.size()); }

 private:
  std::map<Key, int> numbers_;
};

// Groups over the same axes of the ranks' grid: every one the same pattern, moved. They share out the ranks.
struct GroupKind {
  std::vector<std::vector<int>> groups;  // as positions in the plan's list of ranks
  std::vector<int> places;               // by position in that list: which member of its group; -1: in none
};

// A group's positions counted from its first.
std::vector<int> pattern_of(const std::vector<int>& positions) {
  std::vector<int> pattern;
  for (const int position : positions) pattern.push_back(position - positions[0]);
  return pattern;
}

class Classifier {
 public:
  Classifier(const Compiled& first, int first_rank, const MachineProfile& profile, const CompileOptions& options)
      : logical_(first.logical), plan_(first.plan), profile_(profile), ranks_(plan_.ranks()) {
    for (size_t i = 0; i < ranks_.size(); ++i) position_of_[ranks_[i]] = static_cast<int>(i);
    for (const auto& group : first.groups) add_group(group);
    auto exchanges =
        exchange_facts(logical_, plan_, first_rank, options.partition.redistribution, profile, options.deadline);
    exchanged_ = std::move(exchanges.by_rank);
    parts_.resize(ranks_.size());
    places_.resize(ranks_.size());
    add_part_sizes();
    add_group_positions(first.local, exchanges.keys);
  }

  // The ranks of each class, ascending.
  std::vector<std::vector<int>> all_classes() const { return classes_by({&parts_, &exchanged_, &places_}); }

  // At most so many; whether they are fewer than all.
  std::pair<std::vector<std::vector<int>>, bool> at_most(size_t most) const {
    auto classes = all_classes();
    if (classes.size() <= most) return {std::move(classes), false};
    classes = classes_by({&parts_, &exchanged_});
    if (classes.size() <= most) return {std::move(classes), true};
    const Facts parts = rough(parts_);
    const Facts exchanged = rough(exchanged_);
    for (const auto& facts : {std::vector{&parts, &exchanged}, std::vector{&parts}}) {
      classes = classes_by(facts);
      if (classes.size() <= most) return {std::move(classes), true};
    }
    std::vector<int> all = ranks_;
    std::sort(all.begin(), all.end());
    const auto busiest = std::find(all.begin(), all.end(), busiest_rank(parts));
    std::rotate(all.begin(), busiest, busiest + 1);
    return {{std::move(all)}, true};
  }

 private:
  using Facts = std::vector<std::vector<int64_t>>;  // by position

  // In eighths of the most that any rank has of each: what differs by a row of hundreds is alike.
  static Facts rough(Facts facts) {
    for (size_t fact = 0; fact < facts[0].size(); ++fact) {
      int64_t most = 1;
      for (const auto& own : facts) most = std::max(most, own[fact]);
      for (auto& own : facts) own[fact] = (8 * own[fact] + most / 2) / most;
    }
    return facts;
  }

  // The first of those that have the largest parts and the most peers on other hosts, both as shares of what there may
  // be: others wait for it.
  int busiest_rank(const Facts& parts) const {
    std::vector<double> loads(ranks_.size(), 0.0);
    const double num_parts = std::max<double>(1, static_cast<double>(parts[0].size()));
    for (size_t i = 0; i < ranks_.size(); ++i) {
      for (const int64_t part : parts[i]) loads[i] += static_cast<double>(part) / (8 * num_parts);
    }
    for (const auto& [pattern, kind] : kinds_) {
      const double peers = static_cast<double>(pattern.size() * kinds_.size());
      for (const auto& group : kind.groups) {
        std::map<int, int> on_host;
        for (const int i : group) ++on_host[host_of(i)];
        for (const int i : group) {
          loads[static_cast<size_t>(i)] += (static_cast<double>(pattern.size()) - on_host[host_of(i)]) / peers;
        }
      }
    }
    const auto busiest = std::max_element(loads.begin(), loads.end());
    return ranks_[static_cast<size_t>(busiest - loads.begin())];
  }

  int host_of(int position) const { return profile_.host_of(ranks_[static_cast<size_t>(position)]); }

  std::vector<std::vector<int>> classes_by(const std::vector<const Facts*>& facts) const {
    Numbers<std::vector<int64_t>> by_facts;
    std::vector<int> colors;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      std::vector<int64_t> own;
      for (const Facts* some : facts) own.insert(own.end(), (*some)[i].begin(), (*some)[i].end());
      colors.push_back(by_facts.of(own));
    }
    // Ranks are told apart by the ranks that they communicate with, until that tells no more.
    for (int before = 0, now = by_facts.count(); now > before;) {
      before = now;
      now = refine(colors);
    }
    std::map<int, std::vector<int>> members;
    for (size_t i = 0; i < ranks_.size(); ++i) members[colors[i]].push_back(ranks_[i]);
    std::vector<std::vector<int>> classes;
    for (auto& [color, ranks] : members) {
      std::sort(ranks.begin(), ranks.end());
      classes.push_back(ranks);
    }
    std::sort(classes.begin(), classes.end());
    return classes;
  }

  std::vector<int> positions_of(const std::vector<int>& ranks) const {
    std::vector<int> positions;
    for (const int rank : ranks) positions.push_back(position_of_.at(rank));
    return positions;
  }

  void add_group(const std::vector<int>& ranks) {
    const auto positions = positions_of(ranks);
    GroupKind& kind = kinds_[pattern_of(positions)];
    kind.places.resize(ranks_.size(), -1);
    for (size_t i = 0; i < positions.size(); ++i) {
      kind.places[static_cast<size_t>(positions[i])] = static_cast<int>(i);
    }
    kind.groups.push_back(positions);
  }

  // The parts of every dim that is split unevenly. Results lie as the values or inputs that they are.
  void add_part_sizes() {
    struct Split {
      const mesh::Mesh* mesh;
      int64_t size;
      int64_t block;
      std::vector<int> axes;
      auto operator<=>(const Split&) const = default;
    };
    std::set<Split> splits;
    const auto look = [&](ValueId v, const mesh::Mesh& mesh, const mesh::Sharding& sharding) {
      const Shape& shape = logical_.type(v).shape;
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        const auto& axes = sharding.dims[static_cast<size_t>(dim)];
        const int64_t block = sharding.block(dim);
        if (!mesh::is_dealt_evenly(shape[dim], mesh, axes, block)) splits.insert({&mesh, shape[dim], block, axes});
      }
    };
    for (ValueId v = 0; v < logical_.num_values(); ++v) {
      look(v, plan_.mesh_of(v), plan_.values[static_cast<size_t>(v)]);
    }
    for (NodeId n = 0; n < logical_.num_nodes(); ++n) {
      const auto& inputs = logical_.node(n).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        look(inputs[i], plan_.mesh_of_node(n), plan_.operands[static_cast<size_t>(n)][i]);
      }
    }
    for (const auto& split : splits) {
      mesh::Sharding sharding = mesh::Sharding::replicated(1);
      sharding.dims[0] = split.axes;
      sharding.blocks = {split.block};
      const auto parts = mesh::all_slices(Shape{split.size}, *split.mesh, sharding);
      for (size_t i = 0; i < parts.size(); ++i) {
        parts_[static_cast<size_t>(position_of_.at(split.mesh->ranks()[i]))].push_back(parts[i].size);
      }
    }
  }

  // Where the members of a group get pieces of different sizes, the sizes tell; in exchanges of which no more is known,
  // each member's place: what lies at the border of an image has one neighbour, and so on.
  void add_group_positions(const ir::Graph& local, const std::set<std::string>& known_exchanges) {
    std::set<std::pair<std::vector<int>, Ints>> seen;
    for (NodeId n = 0; n < local.num_nodes(); ++n) {
      const ir::Node& node = local.node(n);
      const auto* collective = ops::collective_of(node);
      if (collective == nullptr) continue;
      const Ints& members = node.attributes.get_ints("ranks");
      const auto kind = kinds_.find(pattern_of(positions_of(std::vector<int>(members.begin(), members.end()))));
      if (kind == kinds_.end()) continue;
      Ints pieces;
      auto& facts = collective->names_boxes ? places_ : parts_;
      if (collective->names_boxes) {
        if (known_exchanges.contains(exchange_key(node.attributes))) continue;
        for (size_t i = 0; i < members.size(); ++i) pieces.push_back(static_cast<int64_t>(i));
      } else if (node.attributes.has("sizes")) {
        pieces = node.attributes.get_ints("sizes");
      }
      const bool equal = std::all_of(pieces.begin(), pieces.end(), [&](int64_t piece) { return piece == pieces[0]; });
      if (equal || !seen.emplace(kind->first, pieces).second) continue;
      for (size_t i = 0; i < ranks_.size(); ++i) {
        const int place = kind->second.places[i];
        facts[i].push_back(place < 0 ? -1 : pieces[static_cast<size_t>(place)]);
      }
    }
  }

  // One round: a rank's new color is its old one with those of the members of its groups, host by host. Returns how
  // many there are.
  int refine(std::vector<int>& colors) const {
    std::vector<std::vector<int>> keys;
    for (const int color : colors) keys.push_back({color});
    int kind_number = 0;
    for (const auto& [pattern, kind] : kinds_) {
      ++kind_number;
      Numbers<std::vector<int>> host_numbers;
      Numbers<std::vector<int>> group_numbers;
      for (const auto& group : kind.groups) {
        std::map<int, std::vector<int>> by_host;
        for (const int i : group) {
          by_host[host_of(i)].push_back(colors[static_cast<size_t>(i)]);
        }
        std::map<int, int> number_of_host;
        std::vector<int> hosts;
        for (auto& [host, members] : by_host) {
          std::sort(members.begin(), members.end());
          number_of_host[host] = host_numbers.of(members);
          hosts.push_back(number_of_host[host]);
        }
        std::sort(hosts.begin(), hosts.end());
        const int number = group_numbers.of(hosts);
        for (const int i : group) {
          auto& key = keys[static_cast<size_t>(i)];
          key.push_back(kind_number);
          key.push_back(number);
          key.push_back(number_of_host[host_of(i)]);
        }
      }
    }
    Numbers<std::vector<int>> numbers;
    for (size_t i = 0; i < colors.size(); ++i) colors[i] = numbers.of(keys[i]);
    return numbers.count();
  }

  const ir::Graph& logical_;
  const Plan& plan_;
  const MachineProfile& profile_;
  const std::vector<int>& ranks_;
  std::map<int, int> position_of_;
  std::map<std::vector<int>, GroupKind> kinds_;  // by pattern
  // What tells ranks apart: the sizes of their parts, what they exchange, where in exchanges they stand.
  Facts parts_, exchanged_, places_;
};

using OnClassDone = std::function<void(size_t done, size_t all)>;

// One rank of each of the classes that `classes_of` says.
template <typename ClassesOf>
std::vector<RankClass> compile_classes(Compiled planned, const MachineProfile& profile,
                                       const ops::KernelCatalogue& catalogue, const CompileOptions& options,
                                       const ClassesOf& classes_of, const OnClassDone& on_class_done) {
  const auto compile = [&](int rank) { compile_rank(planned, rank, layout_of(planned, rank), catalogue, options); };
  const int first = *std::min_element(planned.plan.ranks().begin(), planned.plan.ranks().end());
  compile(first);
  auto lists = classes_of(Classifier(planned, first, profile, options));
  std::vector<RankClass> classes;
  for (auto& ranks : lists) {
    if (!classes.empty() || ranks[0] != first) compile(ranks[0]);
    classes.push_back({std::move(ranks), std::move(planned.schedule)});
    if (on_class_done) on_class_done(classes.size(), lists.size());
  }
  return classes;
}

}  // namespace

std::vector<RankClass> schedule_classes(Compiled planned, const MachineProfile& profile,
                                        const ops::KernelCatalogue& catalogue, const CompileOptions& options) {
  const auto all = [](const Classifier& ranks) { return ranks.all_classes(); };
  return compile_classes(std::move(planned), profile, catalogue, options, all, {});
}

RankSample sample_classes(Compiled planned, const MachineProfile& profile, const ops::KernelCatalogue& catalogue,
                          const CompileOptions& options, const RankSampleOptions& sample) {
  RankSample result;
  const auto some = [&](const Classifier& ranks) {
    auto [classes, is_coarse] = ranks.at_most(sample.most_classes);
    result.is_coarse = is_coarse;
    return classes;
  };
  result.classes = compile_classes(std::move(planned), profile, catalogue, options, some, sample.on_class_done);
  return result;
}

}  // namespace tessera::compiler
