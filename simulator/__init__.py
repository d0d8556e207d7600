from countless_lab import register

register()  # a seed may choose a scheme of the lab
