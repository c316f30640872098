"""ResNet-50 (He et al., CVPR 2016): the stride of a block stands on its first convolution, blocks are named by letters."""
import mindspore.nn as nn
import mindspore.ops as ops


def conv(in_channels, out_channels, kernel_size, stride=1):
    return nn.Conv2d(in_channels, out_channels, kernel_size, stride, pad_mode="same", weight_init="XavierUniform")


def norm(channels):
    return nn.BatchNorm2d(channels, momentum=0.99, gamma_init="uniform")


class Head(nn.Cell):
    """A quarter of height and width is left."""

    def __init__(self):
        super(Head, self).__init__()
        self.conv1 = conv(3, 64, 7, stride=2)
        self.bn1 = norm(64)
        self.relu = ops.ReLU()
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="same")

    def construct(self, x):
        return self.maxpool(self.relu(self.bn1(self.conv1(x))))


class Block(nn.Cell):
    """1x1, 3x3 and 1x1 convolution around a shortcut, which is a convolution where the number of channels changes."""

    def __init__(self, in_channels, out_channels, stride=1, down_sample=False):
        super(Block, self).__init__()
        channels = out_channels // 4
        self.conv1 = conv(in_channels, channels, 1, stride)
        self.bn1 = norm(channels)
        self.conv2 = conv(channels, channels, 3)
        self.bn2 = norm(channels)
        self.conv3 = conv(channels, out_channels, 1)
        self.bn3 = norm(out_channels)
        self.relu = ops.ReLU()
        self.add = ops.Add()
        self.down_sample = down_sample
        if down_sample:
            self.conv_down_sample = conv(in_channels, out_channels, 1, stride)
            self.bn_down_sample = norm(out_channels)

    def construct(self, x):
        shortcut = x
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        if self.down_sample:
            shortcut = self.bn_down_sample(self.conv_down_sample(shortcut))
        return self.relu(self.add(x, shortcut))


class Stage(nn.Cell):
    """Blocks a, b, ...; the first carries the stride."""

    def __init__(self, num_blocks, in_channels, out_channels, stride):
        super(Stage, self).__init__()
        self.names = "abcdef"[:num_blocks]
        for i, name in enumerate(self.names):
            first = i == 0
            setattr(self, name, Block(in_channels if first else out_channels, out_channels, stride if first else 1, first))

    def construct(self, x):
        for name in self.names:
            x = getattr(self, name)(x)
        return x


class ResNet(nn.Cell):
    """x [n,3,h,w] -> logits [n,num_classes]."""

    def __init__(self, num_classes):
        super(ResNet, self).__init__()
        self.head = Head()
        self.layer1 = Stage(3, 64, 256, stride=1)
        self.layer2 = Stage(4, 256, 512, stride=2)
        self.layer3 = Stage(6, 512, 1024, stride=2)
        self.layer4 = Stage(3, 1024, 2048, stride=2)
        self.pool = ops.ReduceMean(keep_dims=True)
        self.squeeze = ops.Squeeze(axis=(2, 3))
        self.fc = nn.Dense(2048, num_classes, weight_init="XavierUniform", bias_init="uniform")

    def construct(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.head(x)))))
        return self.fc(self.squeeze(self.pool(x, (2, 3))))


def resnet50(batch_size, num_classes):
    """The network; the batch size is not looked at."""
    return ResNet(num_classes)
