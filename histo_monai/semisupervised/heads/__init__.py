"""Methods that fit a head on frozen features, for `finetune.mode: head` (`semisupervised.protocol.HeadTeacher`)."""
