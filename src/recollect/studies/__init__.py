"""The paper's figures and the memory benchmark, as data; what runs them, judges them and draws them."""
