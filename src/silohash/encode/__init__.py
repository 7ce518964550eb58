"""From items to codes: trained models, their encoder, and codes and towers for other programs."""
