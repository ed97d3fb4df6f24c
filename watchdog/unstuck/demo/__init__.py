"""`unstuck demo`: workers, load, an agent and a killed worker on one machine; stage.py sets it up, story.py tells it."""
