"""Trained models for the tools that people serve with, and models from there."""
