"""Reads a trace with Perfetto's own classes, as its trace processor does, and prints tracks and slices as JSON. Runs in .venv-perfetto:
perfetto_test.py calls it."""

import json
import sys
from pathlib import Path

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

# What of InternedData each kind of text is in, and what of an entry is the text.
INTERNED = {"category": ("event_categories", "name"), "name": ("event_names", "name"), "annotation": ("debug_annotation_names", "name"),
            "text": ("debug_annotation_string_values", "str")}


def unknown_fields(message, path="trace"):
    """The paths of the bytes that no message of Perfetto's has a field for."""
    found = [f"{path}: field {field.field_number}" for field in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if isinstance(value, Message):
            found += unknown_fields(value, f"{path}.{field.name}")
        elif field.type == field.TYPE_MESSAGE:
            for one in value:
                found += unknown_fields(one, f"{path}.{field.name}")
    return found


class Reading:
    def __init__(self, trace):
        self.faults, self.tracks, self.slices = unknown_fields(trace), {}, []
        texts, events = {}, []
        for place, packet in enumerate(trace.packet):
            if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
                texts = {}
            elif place == 0:
                self.faults.append("the first packet clears no state")
            for kind, (field, text) in INTERNED.items():
                for entry in getattr(packet.interned_data, field):
                    value = getattr(entry, text)
                    if texts.setdefault((kind, entry.iid), value) != value or entry.iid == 0:
                        self.faults.append(f"{kind} {entry.iid} is interned twice, or is 0")
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                if track.uuid in self.tracks or (track.HasField("parent_uuid") and track.parent_uuid not in self.tracks):
                    self.faults.append(f"track {track.uuid} is there twice, or its parent is not")
                self.tracks[track.uuid] = {"name": track.name, "parent": track.parent_uuid, "place": track.sibling_order_rank}
            if packet.HasField("track_event"):
                events.append((packet.timestamp, self.resolved(packet.track_event, texts)))
        events.sort(key=lambda event: event[0])  # those of one time stay as they are in the file
        self.replay(events)

    def resolved(self, event, texts):
        """The event with its texts."""

        def text(kind, number):
            if (kind, number) not in texts:
                self.faults.append(f"{kind} {number} is used before it is interned")
            value = texts.get((kind, number), "")
            return value.decode() if isinstance(value, bytes) else value

        arguments = {}
        for annotation in event.debug_annotations:
            value = annotation.WhichOneof("value")
            arguments[text("annotation", annotation.name_iid)] = (
                text("text", annotation.string_value_iid) if value == "string_value_iid" else getattr(annotation, value))
        if event.track_uuid not in self.tracks:
            self.faults.append(f"an event is on track {event.track_uuid}, which is not there")
        is_begin = event.type == TrackEvent.TYPE_SLICE_BEGIN
        if not is_begin and event.type != TrackEvent.TYPE_SLICE_END:
            self.faults.append(f"an event of type {event.type}")
        return {"track": event.track_uuid, "is_begin": is_begin, "name": text("name", event.name_iid) if is_begin else "",
                "category": ",".join(text("category", number) for number in event.category_iids), "arguments": arguments,
                "flows": list(event.flow_ids), "terminated_flows": list(event.terminating_flow_ids)}

    def replay(self, events):
        open_slices = {}  # by track, each within the one before
        for at_ns, event in events:
            stack = open_slices.setdefault(event["track"], [])
            if event.pop("is_begin"):
                self.slices.append(event | {"begin_ns": at_ns, "end_ns": None, "parent": stack[-1] if stack else None})
                stack.append(len(self.slices) - 1)
            elif stack:
                ended = self.slices[stack.pop()]
                ended["end_ns"] = at_ns
                ended["terminated_flows"] += event["terminated_flows"]
            else:
                self.faults.append(f"a slice ends on track {event['track']} that has not begun")
        self.faults += [f"{len(stack)} slices of track {track} have no end" for track, stack in open_slices.items() if stack]


if __name__ == "__main__":
    reading = Reading(Trace.FromString(Path(sys.argv[1]).read_bytes()))
    json.dump({"faults": reading.faults, "tracks": reading.tracks, "slices": reading.slices}, sys.stdout)
