import sys
print("unchecked")
