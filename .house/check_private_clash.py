import ast,glob,os
os.chdir("/work/main")
maps={}
for f in glob.glob("/tmp/map/*.map"):
    for l in open(f):
        p=l.rstrip("\n").split("\t")
        if p[0]=="name" and len(p)==3: maps[p[1]]=p[2]
for f in sorted(glob.glob("/tmp/map/*.names.tsv")):
    for l in open(f):
        m,n,k,line,uses,fl=(l.rstrip("\n").split("\t")+[""])[:6]
        if "OWN-MODULE-ONLY" not in fl: continue
        t=maps.get(f"{m}:{n}",n)
        path=m.replace(".","/")+".py"
        if not os.path.exists(path): path=m.replace(".","/")+"/__init__.py"
        tree=ast.parse(open(path).read())
        names={x.id for x in ast.walk(tree) if isinstance(x,ast.Name)}|{x.name for x in ast.walk(tree) if isinstance(x,(ast.FunctionDef,ast.ClassDef))}|{x.arg for x in ast.walk(tree) if isinstance(x,ast.arg)}
        if "_"+t in names: print("CLASH",m,n,"-> _"+t,k,"mapped" if f"{m}:{n}" in maps else "")
