"""ResNet-50 in PyTorch, as the tutorials' sample has it and with its parameter names.

The 1x1 convolution at the head of a block carries the stride, the first block of every layer has a projection, batch
norm has eps 1e-5 and keeps 0.99 of its moving statistics. Names: head.conv1.weight, head.bn1.gamma, layer1.a.conv1.weight,
layer1.a.conv_down_sample.weight, ..., fc.weight, fc.bias.
"""

import torch
from torch import nn
from torch.nn import functional as F

# PyTorch's words for a batch norm's four tensors, and the sample's.
BATCH_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


class SamePadded(nn.Module):
    """Pads so that the output has ceil(in / stride) rows: the odd row of padding goes below and right, which the padding
    argument of PyTorch's own layers cannot say."""

    def __init__(self, layer, kernel, stride, value=0.0):
        super().__init__()
        self.layer, self.kernel, self.stride, self.value = layer, kernel, stride, value

    def forward(self, x):
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return self.layer(F.pad(x, pads, value=self.value))


class Block(nn.Module):
    def __init__(self, channels_in, channels_out, stride, project):
        super().__init__()
        inner = channels_out // 4
        self.conv1 = nn.Conv2d(channels_in, inner, 1, stride, bias=False)
        self.bn1 = nn.BatchNorm2d(inner, momentum=0.01)
        self.conv2 = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner, momentum=0.01)
        self.conv3 = nn.Conv2d(inner, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out, momentum=0.01)
        if project:
            self.conv_down_sample = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.bn_down_sample = nn.BatchNorm2d(channels_out, momentum=0.01)
        self.project = project

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        out = self.bn3(self.conv3(out))
        identity = self.bn_down_sample(self.conv_down_sample(x)) if self.project else x
        return F.relu(out + identity, inplace=True)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64, momentum=0.01)


class ResNet50(nn.Module):
    """Images [n, 3, h, w] -> logits [n, num_classes]. exact_padding: pad as the sample does (`same`), at the cost of a
    copy; else by 3 and 1 on all sides, as is usual in PyTorch: the same amount of work."""

    def __init__(self, num_classes=10, exact_padding=True):
        super().__init__()
        self.head = Head()
        self.maxpool = nn.MaxPool2d(3, 2)
        if exact_padding:
            # Beside the module tree, whose names are the parameters'.
            self.__dict__["conv1"] = SamePadded(self.head.conv1, 7, 2)
            self.__dict__["pool1"] = SamePadded(self.maxpool, 3, 2, float("-inf"))
        else:
            self.head.conv1.padding = (3, 3)
            self.maxpool.padding = 1
            self.__dict__["conv1"], self.__dict__["pool1"] = self.head.conv1, self.maxpool
        channels = 64
        for number, (blocks, out) in enumerate(((3, 256), (4, 512), (6, 1024), (3, 2048)), 1):
            layer = nn.Sequential()
            for i in range(blocks):
                layer.add_module("abcdef"[i], Block(channels, out, 2 if i == 0 and number > 1 else 1, i == 0))
                channels = out
            self.add_module(f"layer{number}", layer)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x):
        x = self.pool1(F.relu(self.head.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))

    def named_tensors(self):
        """{name as the sample has it: tensor} of all parameters and moving statistics."""
        tensors = {}
        for name, tensor in self.state_dict(keep_vars=True).items():
            path, _, last = name.rpartition(".")
            if last == "num_batches_tracked":
                continue
            tensors[f"{path}.{BATCH_NORM[last]}" if path.rpartition(".")[2].startswith("bn") else name] = tensor
        return tensors


def initialise(network, seed):
    """The usual initial values: He normal for convolutions, gamma 1, beta 0, Xavier uniform for the last layer."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                fan = module.weight.shape[0] * module.weight.shape[2] * module.weight.shape[3]
                module.weight.normal_(0, (2 / fan) ** 0.5, generator=generator)
            elif isinstance(module, nn.Linear):
                limit = (6 / sum(module.weight.shape)) ** 0.5
                module.weight.uniform_(-limit, limit, generator=generator)
                module.bias.zero_()
