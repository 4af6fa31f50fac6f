"""Networks that stage sleep, with any norm."""

from psdnorm.models.checkpoint import from_pretrained
from psdnorm.models.cnn_transformer import CNNTransformer
from psdnorm.models.fast import accelerate
from psdnorm.models.usleep import USleep

__all__ = ["CNNTransformer", "USleep", "accelerate", "from_pretrained"]
